"""``sightline data check``: what a set holds, and what is wrong with it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from sightline.cli.data_sheet import contact_sheet
from sightline.cli.files import checked_picture, save
from sightline.cli.problems import print_problems
from sightline.data.check import MEANINGS, OnProgress, Report, check
from sightline.data.readers import open_dataset

app = typer.Typer(help="Look at data before training on it.", no_args_is_help=True)


@app.callback()
def options() -> None:
    """Look at data before training on it."""


@app.command("check")
def check_command(
    place: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A folder, zip or table of captions, sentence pairs or classes; scenes, dates or digits.",
        ),
    ],
    task: Annotated[
        str | None,
        typer.Option(help="What it is for: caption, translate, classify; default: what it looks like."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A contact sheet to draw (.png, .svg, ...).")] = None,
    longest: Annotated[int, typer.Option(help="Report captions of more words.")] = 50,
    seed: Annotated[int, typer.Option(help="Draws the splits where none is stated.")] = 0,
    source: Annotated[str | None, typer.Option(help="Sentence pairs: the language that is read.")] = None,
    target: Annotated[str | None, typer.Option(help="Sentence pairs: the language that is written.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, no table.")] = False,
) -> None:
    """Count examples by split, and name what is broken, missing, double, or can't be used.

    Images are opened once; nothing is written beside them. What is wrong is told and the exit code is 0, as
    long as one example can be used.
    """
    if out is not None:
        _check_outside(checked_picture(out), Path(place))
    if task is None and (source is not None or target is not None):
        task = "translate"
    dataset = open_dataset(place, task, seed=seed, source=source, target=target)
    with _progress(sum(dataset.splits().values())) as on_progress:
        report = check(dataset, longest=longest, on_progress=on_progress)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=1, ensure_ascii=False))
    else:
        _print(report)
    if out is not None:
        save(contact_sheet(dataset, report), out)
        typer.echo(out, err=as_json)


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


def _print(report: Report) -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    # The names of splits, which --split takes, are never cut.
    table.add_column("split", no_wrap=True, min_width=max(map(len, report.splits)))
    for column in report.columns:
        table.add_column(column, justify="right")
    for name, numbers in report.splits.items():
        table.add_row(Text(name), *(Text(cell(numbers)) for cell in report.columns.values()))
    console.print(Text(f"{report.source}: {report.about}; splits {report.rule}"))
    console.print(table)
    for note in report.notes:
        console.print(Text(note))
    told = {kind: [problem.sentence for problem in found] for kind, found in report.by_kind().items()}
    print_problems(console, told, MEANINGS)
