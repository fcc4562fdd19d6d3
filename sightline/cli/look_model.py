"""``sightline look`` of a model that was saved by Hugging Face: a table of heads, a figure or a page."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import typer
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sightline import show
from sightline.cli.outputs import PAGES, print_paths, save_figure, save_text
from sightline.look.heads import Head, by_layer, head_table, sharpest
from sightline.look.names import matches
from sightline.show.pages import HEADS_LEGEND, head_cells, heads_page
from sightline.tasks.hugging_face import WatchedModel, is_model_folder, watch_folder

__all__ = ["look"]

_MARKED = 3  # heads that are marked as the sharpest


def look(target: Path, text: str, layer: str | None, out: Path | None, *, as_json: bool) -> None:
    """Watch a saved model read a text, and show its heads."""
    watched = _watched(target, text, layer)
    table = head_table(watched.seen)
    if as_json:
        typer.echo(json.dumps(_as_object(watched, table), indent=1, ensure_ascii=False))
    else:
        _print(watched, table)
    if out is None:
        return
    if out.suffix.lower() in PAGES:
        page = heads_page(
            watched.name,
            text=watched.text,
            seen=watched.seen,
            tokens={name: (watched.queries[name], watched.keys[name]) for name in watched.keys},
            heads=table,
            marked=sharpest(table, _MARKED),
            is_part=watched.is_part,
            about=watched.title,
        )
        save_text(page, out)
    else:
        save_figure(_figure(watched), out)
    print_paths([out])


def _watched(target: Path, text: str, layer: str | None) -> WatchedModel:
    """Open the target, whatever it is, and watch it read."""
    if not target.is_dir():
        kind = "is a file, not a folder" if target.exists() else "does not exist"
        raise ValueError(f"look needs a folder with a model, {str(target)!r} {kind}")
    if not text.strip():
        raise ValueError(f"look needs a text to read, got {text!r}")
    if not is_model_folder(target):
        raise ValueError(
            f"there is no config.json in {str(target)!r}; look takes a run that `sightline train` wrote, or "
            "a Hugging Face folder, as model.save_pretrained and tokenizer.save_pretrained write it"
        )
    names: list[str] = []

    def chosen(name: str) -> bool:
        names.append(name)
        return layer is None or matches(name, layer)

    watched = watch_folder(target, text, chosen)
    if not watched.seen:
        if names and layer is not None:
            raise ValueError(f"no layer matches {layer!r}; this model has {', '.join(dict.fromkeys(names))}")
        raise ValueError(watched.seen.explanation())
    return dataclasses.replace(watched, is_part=layer is not None)


def _figure(watched: WatchedModel) -> Figure:
    layers = by_layer(watched.seen)
    if len(layers) == 1:
        ((name, sight),) = layers.items()
        return show.heads(sight, *watched.sides_of(name, sight))
    return show.entropy(watched.seen)


def _as_object(watched: WatchedModel, table: list[Head]) -> dict[str, Any]:
    marked = sharpest(table, _MARKED)
    heads = [dataclasses.asdict(head) | {"sharpest": head in marked} for head in table]
    return {"model": watched.title, "text": watched.text, "keys": dict(watched.keys), "heads": heads}


def _print(watched: WatchedModel, table: list[Head]) -> None:
    """The table of heads; a star marks the sharpest."""
    marked = sharpest(table, _MARKED)
    printed = Table(title=None, box=None, pad_edge=False)
    printed.add_column("layer", no_wrap=True)
    for column in ("head", "entropy", "evenness", "distance", "first", "peak"):
        printed.add_column(column, justify="right", no_wrap=True)
    printed.add_column("")
    for head in table:
        star = "* sharp" if head in marked else ""
        printed.add_row(Text(head.layer or "(the model itself)"), *head_cells(head), star)
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    console.print(Text(watched.title), Text(f"{len(next(iter(watched.keys.values())))} tokens"), sep=": ")
    console.print(printed)
    console.print(Text(HEADS_LEGEND), soft_wrap=True)
    console.print(
        Text(
            f"* sharp: the {len(marked)} heads of the lowest evenness, looking at few of the tokens they may."
        )
    )
