"""``sightline data check``: what a set holds, and what is wrong with it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from sightline.cli.app import CONTEXT, Group, make_command
from sightline.cli.data_sheet import contact_sheet
from sightline.cli.outputs import (
    check_figure,
    plain_text,
    print_json,
    print_paths,
    save_figure,
)
from sightline.data.check import MEANINGS, DataReport, OnProgress, check
from sightline.data.readers import READERS, open_dataset

__all__ = ["group", "print_problems"]


def group() -> Any:
    """``sightline data`` with its commands."""
    commands = Group(
        name="data",
        help="Check data before training on it.",
        no_args_is_help=True,
        context_settings=dict(CONTEXT),
    )
    commands.add_command(make_command(check_data, name="check"))
    return commands


def check_data(
    place: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A folder, zip, table or shards of captions, pairs or classes; scenes, dates or digits.",
        ),
    ],
    task: Annotated[
        str | None, typer.Option(help=f"What it is for: {', '.join(READERS)}; default: what it looks like.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A contact sheet to draw (.png, .svg, ...).")] = None,
    longest: Annotated[int, typer.Option(help="Report captions of more words.")] = 50,
    seed: Annotated[int, typer.Option(help="Draws the splits where none is stated.")] = 0,
    source: Annotated[str | None, typer.Option(help="Sentence pairs: the language that is read.")] = None,
    target: Annotated[str | None, typer.Option(help="Sentence pairs: the language that is written.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, no table.", metavar="")
    ] = False,
) -> None:
    """Count examples by split, and name what is broken, missing, double, or can't be used.

    Images are opened once; nothing is written beside them. What is wrong is told and the exit code is 0, as
    long as one example can be used.
    """
    if out is not None:
        _check_outside(check_figure(out), Path(place))
    dataset = open_dataset(place, task, seed=seed, source=source, target=target)
    with _progress(sum(dataset.splits().values())) as on_progress:
        report = check(dataset, longest=longest, on_progress=on_progress)
    if as_json:
        print_json(report.as_json())
    else:
        _print(report)
    if out is not None:
        save_figure(contact_sheet(dataset, report), out)
        print_paths([out])


def _check_outside(out: Path, data: Path) -> None:
    """A sheet among the images would be one of them the next time."""
    if data.is_dir() and data.resolve() in out.resolve().parents:
        raise ValueError(f"--out must lie outside the data, {str(out)!r} is in {str(data)!r}")


@contextmanager
def _progress(total: int) -> Iterator[OnProgress]:
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("opening images", total=total)
        yield lambda count: bar.update(task, completed=count)


def _print(report: DataReport) -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    # The names of splits, which --split takes, are never cut.
    table.add_column("split", no_wrap=True, min_width=max(map(len, report.splits)))
    for column in report.columns:
        table.add_column(column, justify="right")
    for name, numbers in report.splits.items():
        table.add_row(plain_text(name), *(plain_text(cell(numbers)) for cell in report.columns.values()))
    console.print(plain_text(f"{report.source}: {report.about}; splits {report.rule}"))
    console.print(table)
    for note in report.notes:
        console.print(plain_text(note))
    sentences = {kind: [problem.sentence for problem in same] for kind, same in report.by_kind().items()}
    print_problems(console, sentences, MEANINGS)


_SHOWN = 5  # problems of a kind that are listed; --json lists all


def print_problems(console: Console, problems: Mapping[str, Sequence[str]], kinds: Mapping[str, str]) -> None:
    """The first sentences of every kind of problem, under what the kind is; or that there is none."""
    for kind, sentences in problems.items():
        console.print(plain_text(f"{kind} ({len(sentences):,}): {kinds.get(kind, kind)}", style="bold"))
        for sentence in sentences[:_SHOWN]:
            console.print(plain_text(f"  {sentence}"))
        if len(sentences) > _SHOWN:
            console.print(plain_text(f"  and {len(sentences) - _SHOWN:,} more; --json lists all"))
    if not problems:
        console.print(plain_text("no problem found"))
