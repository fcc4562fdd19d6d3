"""``sightline data check``: what a set of images with captions holds, and what is wrong with it."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from sightline.cli import data_pairs
from sightline.cli.files import checked_picture, save
from sightline.cli.problems import print_problems
from sightline.data.captions import CaptionedImage, CaptionSet, read_captions
from sightline.data.check import OnProgress, Report, check
from sightline.data.check_pairs import has_pairs
from sightline.data.scenes import scenes_set
from sightline.show.contact import contact

app = typer.Typer(help="Look at data before training on it.", no_args_is_help=True)

_SCENES = (800, 100, 100)  # of each split, enough to see what they are like
_PIXELS = 240  # a tile's side
_BROKEN = 6  # tiles for images that can't be read
_TILES = {"train": 12, "val": 6, "test": 6}
_KINDS = {
    "broken": "images that can't be read; they are skipped",
    "missing": "images that are named and not there",
    "no caption": "images without a caption",
    "no word": "captions that are left out",
    "no name": "entries that name no image",
    "too long": "captions of more words than --longest",
    "duplicate": "images that are in more than one split",
}


@app.callback()
def options() -> None:
    """Look at data before training on it."""


@app.command("check")
def check_command(
    place: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="A folder or zip of images with captions or sentence pairs, scenes or dates."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="A contact sheet to draw (.png, .svg, ...).")] = None,
    longest: Annotated[int, typer.Option(help="Report captions of more words.")] = 50,
    seed: Annotated[int, typer.Option(help="Draws the splits where none is stated.")] = 0,
    source: Annotated[str | None, typer.Option(help="Sentence pairs: the language that is read.")] = None,
    target: Annotated[str | None, typer.Option(help="Sentence pairs: the language that is written.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, no table.")] = False,
) -> None:
    """Count images, captions and words by split, and name what is broken, missing, too long or double.

    Of sentence pairs: pairs and words by split; lines without a partner, empty and identical sides, lengths
    that don't fit, and sentences of another split in train.

    Every image is opened once; nothing is written beside them. What is wrong is told and the exit code is 0,
    as long as one image or one pair can be used.
    """
    if has_pairs(place) or source is not None or target is not None:
        data_pairs.check(place, source=source, target=target, as_json=as_json)
        return
    path = Path(place)
    if out is not None:
        _check_outside(checked_picture(out), path)
    captions = scenes_set(*_SCENES, seed) if place == "scenes" else read_captions(path, seed=seed)
    with _progress(len(captions)) as tell:
        report = check(captions, longest=longest, on_progress=tell)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=1, ensure_ascii=False))
    else:
        _print(report)
    if out is not None:
        save(_sheet(captions, report), out)
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
    for column in ("split", "images", "captions", "distinct words", "not in train", "longest"):
        table.add_column(column, justify="left" if column == "split" else "right")
    for name, split in report.splits.items():
        cells = (split.images, split.captions, split.words, f"{split.unknown:.1%}", split.longest)
        table.add_row(Text(name), *(f"{x:,}" if isinstance(x, int) else x for x in cells))
    console.print(Text(f"{report.source}: {report.form} captions; splits {report.rule}"))
    console.print(table)
    smallest, middle, largest = report.sides
    console.print(
        Text(
            f"{report.often:,} words are in train at least 5 times; words are {report.cleaning}\n"
            f"shorter sides of {smallest} to {largest} pixels, {middle} in the middle"
        )
    )
    if report.repeated:
        console.print(Text(f"repeated ({report.repeated:,}): images that are twice in their split"))
    told = {kind: [problem.sentence for problem in found] for kind, found in report.by_kind().items()}
    print_problems(console, told, _KINDS)


def _sheet(captions: CaptionSet, report: Report) -> Figure:
    """Some images of each split, drawn by a hash of their names, and the first broken ones."""
    broken = {problem.name: problem.sentence for problem in report.by_kind().get("broken", [])}
    chosen: list[CaptionedImage] = []
    for split in report.splits:
        records = [x for x in captions.split(split) if x.name not in broken]
        records.sort(key=lambda x: hashlib.sha256(x.name.encode()).digest())
        chosen += records[: _TILES.get(split, 6)]
    shown = list(broken.items())[:_BROKEN]
    names = ", ".join(f"{name} {split.images:,}" for name, split in report.splits.items())
    return contact(
        [*(captions.open(record, size=_PIXELS) for record in chosen), *[None] * len(shown)],
        [*(record.captions[0] for record in chosen), *(sentence for _, sentence in shown)],
        labels=[
            *(f"{record.split}  {Path(record.name).name}" for record in chosen),
            *(f"broken  {Path(name).name}" for name, _ in shown),
        ],
        title=f"{Path(report.source).name}: {names}",
    )
