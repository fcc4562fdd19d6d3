"""``sightline look``: where a model looked while it read a text, as a table of heads, a figure or a page."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sightline import show
from sightline.cli import hugging_face, runs
from sightline.cli.files import PICTURES, check_place, replacing, save
from sightline.cli.layer_names import matches
from sightline.cli.look_page import LEGEND, cells, page
from sightline.cli.watched import Watched
from sightline.look.heads import Head, by_layer, head_table, sharpest

_MARKED = 3  # heads that are marked as the sharpest
_PAGES = (".html", ".htm")


def look(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|FOLDER", help="A run that `sightline train` wrote, or a Hugging Face folder."
        ),
    ],
    text: Annotated[
        str,
        typer.Argument(
            metavar="INPUT", help="The text it reads, - for standard input, or the picture it sees."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="A page (.html) or a figure (.png, .svg, ...) to write.")
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="Only layers of this name, such as '*.3.*', 'layer.3' or 3; of a run that writes, "
            "3 is what its decoder's layer 3 looked at.",
        ),
    ] = None,
    head: Annotated[
        int | None,
        typer.Option(
            help="A run: one head, not the mean of all; counted within --layer, else through all layers."
        ),
    ] = None,
    beam: Annotated[
        int | None, typer.Option(help="A run that writes: width of its search.", show_default="5")
    ] = None,
    device: Annotated[str | None, typer.Option(help="A run: where; a GPU if there is one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, no table.")] = False,
) -> None:
    """Run a model once over its input, and show where it looked.

    Of a run: where it looked for all that it wrote or classified.

    Of a Hugging Face folder: a table of all heads; a figure is of the heads
    of the layer, if --layer chose one, else of the entropy by layer and head.
    """
    if out is not None:
        _check_out(out)
    if beam is not None and beam < 1:
        raise ValueError(f"--beam must be at least 1, got {beam}")
    if runs.is_run(target):
        kind = runs.kind_in(target)
        given = sys.stdin.read() if text == "-" and kind == "translate" else text
        wanted = runs.Look(
            out=out,
            layer=layer,
            head=head,
            beam=beam or 5,
            as_json=as_json,
            device=runs.chosen_device(device),
        )
        runs.for_kind("look", kind).look(target, given, wanted)
        return
    for option, value in (("--head", head), ("--beam", beam), ("--device", device)):
        if value is not None:
            raise ValueError(
                f"{option} is for runs that `sightline train` wrote, got {value} for {str(target)!r}"
            )
    watched = _watched(target, sys.stdin.read() if text == "-" else text, layer)
    table = head_table(watched.seen)
    if as_json:
        typer.echo(json.dumps(_as_object(watched, table), indent=1, ensure_ascii=False))
    else:
        _print(watched, table)
    if out is not None:
        if out.suffix.lower() in _PAGES:
            with replacing(out) as beside:
                beside.write_text(page(watched, table, sharpest(table, _MARKED)), encoding="utf-8")
        else:
            save(_figure(watched), out)
        typer.echo(out, err=as_json)


def _watched(target: Path, text: str, layer: str | None) -> Watched:
    """Open the target, whatever it is, and watch it read."""
    if not target.is_dir():
        kind = "is a file, not a folder" if target.exists() else "does not exist"
        raise ValueError(f"look needs a folder with a model, {str(target)!r} {kind}")
    if not text.strip():
        raise ValueError(f"look needs a text to read, got {text!r}")
    if not hugging_face.is_folder(target):
        raise ValueError(
            f"there is no config.json in {str(target)!r}; look takes a run that `sightline train` wrote, or "
            "a Hugging Face folder, as model.save_pretrained and tokenizer.save_pretrained write it"
        )
    names: list[str] = []

    def chosen(name: str) -> bool:
        names.append(name)
        return layer is None or matches(name, layer)

    watched = hugging_face.read(target, text, chosen)
    if not watched.seen:
        if names and layer is not None:
            raise ValueError(f"no layer matches {layer!r}; this model has {', '.join(dict.fromkeys(names))}")
        raise ValueError(watched.seen.explanation())
    return dataclasses.replace(watched, is_part=layer is not None)


def _check_out(out: Path) -> None:
    """Refuse what can't be written before the model runs."""
    if out.suffix.lower() not in (*_PAGES, *PICTURES):
        raise ValueError(
            f"--out must end in .html for a page, or in one of {', '.join(PICTURES)} for a figure, "
            f"got {str(out)!r}"
        )
    check_place(out)


def _figure(watched: Watched) -> Figure:
    layers = by_layer(watched.seen)
    if len(layers) == 1:
        ((name, sight),) = layers.items()
        return show.heads(sight, *watched.sides_of(name, sight))
    return show.entropy(watched.seen)


def _as_object(watched: Watched, table: list[Head]) -> dict[str, Any]:
    marked = sharpest(table, _MARKED)
    heads = [dataclasses.asdict(head) | {"sharpest": head in marked} for head in table]
    return {"model": watched.title, "text": watched.text, "keys": dict(watched.keys), "heads": heads}


def _print(watched: Watched, table: list[Head]) -> None:
    """The table of heads; a star marks the sharpest."""
    marked = sharpest(table, _MARKED)
    printed = Table(title=None, box=None, pad_edge=False)
    printed.add_column("layer", no_wrap=True)
    for column in ("head", "entropy", "distance", "first", "peak"):
        printed.add_column(column, justify="right", no_wrap=True)
    printed.add_column("")
    for head in table:
        star = "* sharp" if head in marked else ""
        printed.add_row(Text(head.layer or "(the model itself)"), *cells(head), star)
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    console.print(Text(watched.title), Text(f"{len(next(iter(watched.keys.values())))} tokens"), sep=": ")
    console.print(printed)
    console.print(Text(LEGEND), soft_wrap=True)
    console.print(
        Text(f"* sharp: the {len(marked)} heads of the lowest entropy, looking at the fewest tokens.")
    )
