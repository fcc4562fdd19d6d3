"""``sightline data check`` of sentence pairs."""

import json
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sightline.data.check_pairs import PairReport, check_pairs

__all__ = ["check"]

_SHOWN = 5  # problems of a kind that are listed; --json lists all
_KINDS = {
    "unequal": "splits have sides of different length and can't be paired",
    "empty": "pairs have an empty side",
    "identical": "pairs have the same text on both sides",
    "ratio": "pairs have one side more than three times as long as the other",
    "double": "pairs are there more than once",
    "overlap": "sources of another split are in train",
}


def check(path: Path, *, source: str | None, target: str | None, as_json: bool) -> None:
    """Count pairs and words by split, and name what is unequal, empty, identical, uneven or double."""
    report = check_pairs(path, source=source, target=target)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=1, ensure_ascii=False))
    else:
        _print(report)


def _print(report: PairReport) -> None:
    console = Console(highlight=False, soft_wrap=True)
    source, target = report.languages
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (
        "split",
        "pairs",
        f"{source} words",
        f"{target} words",
        "longest",
        f"{target}/{source} letters",
        "not in train",
    ):
        table.add_column(column, justify="left" if column == "split" else "right")
    for name, split in report.splits.items():
        table.add_row(
            Text(name),
            f"{split.pairs:,}",
            f"{split.words[0]:,}",
            f"{split.words[1]:,}",
            f"{split.longest[0]} / {split.longest[1]}",
            f"{split.ratio:.2f}",
            "-" if split.unknown is None else f"{split.unknown:.1%}",
        )
    console.print(Text(f"{report.source}: sentence pairs, {source} to {target}"))
    console.print(table)
    for kind, sentences in report.problems.items():
        console.print(Text(f"{len(sentences):,} {_KINDS.get(kind, kind)}:", style="bold"))
        for sentence in sentences[:_SHOWN]:
            console.print(Text(f"  {sentence}"))
        if len(sentences) > _SHOWN:
            console.print(Text(f"  and {len(sentences) - _SHOWN:,} more; --json lists all"))
    if not report.problems:
        console.print(Text("no problem found"))
