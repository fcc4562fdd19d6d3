"""``sightline data check`` of sentence pairs."""

import json

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sightline.cli.problems import print_problems
from sightline.data.check_pairs import PairReport, check_pairs

__all__ = ["check"]

_KINDS = {
    "lacking": "splits that a training needs",
    "none": "splits without a pair",
    "unequal": "splits whose sides differ in length; they can't be paired",
    "empty": "pairs with an empty side; a training refuses them",
    "identical": "pairs with the same text on both sides",
    "ratio": "pairs with one side more than three times as long as the other",
    "double": "pairs that are there more than once",
    "overlap": "sources of another split that are in train",
}


def check(place: str, *, source: str | None, target: str | None, as_json: bool) -> None:
    """Count pairs and words by split, and name what is unequal, empty, identical, uneven or double."""
    report = check_pairs(place, source=source, target=target)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=1, ensure_ascii=False))
    else:
        _print(report)


def _print(report: PairReport) -> None:
    console = Console(highlight=False, soft_wrap=True)
    source, target = report.languages
    console.print(Text(f"{report.source}: sentence pairs, {source} to {target}; splits {report.rule}"))
    console.print(_table(report))
    print_problems(console, report.problems, _KINDS)


def _table(report: PairReport) -> Table:
    """The splits in numbers; their names, which --split takes, are never cut."""
    source, target = report.languages
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("split", no_wrap=True, min_width=max(map(len, report.splits)))
    for column in (
        "pairs",
        f"distinct words\n{source} / {target}",
        f"longest\n{source} / {target}",
        f"letters\n{target}/{source}",
        "not in\ntrain",
    ):
        table.add_column(column, justify="right")
    for name, split in report.splits.items():
        table.add_row(
            Text(name),
            f"{split.pairs:,}",
            f"{split.words[0]:,} / {split.words[1]:,}",
            f"{split.longest[0]} / {split.longest[1]}",
            f"{split.ratio:.2f}",
            "-" if split.unknown is None else f"{split.unknown:.1%}",
        )
    return table
