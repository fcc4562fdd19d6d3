"""``sightline look`` of a model that was saved by Hugging Face: a table of heads, a figure or a page."""

import dataclasses
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from sightline import show
from sightline.cli.outputs import (
    FIGURES,
    output_names,
    plain_text,
    print_json,
    print_paths,
    save_figure,
    save_text,
)
from sightline.data.images import IMAGE_SUFFIXES
from sightline.look.heads import Head, by_layer, head_table, sharpest
from sightline.show.head_cells import HEADS_LEGEND, head_cells
from sightline.show.pages import Figures
from sightline.show.vit import received_by_layer
from sightline.tasks.hugging_face import FolderModel, WatchedModel, is_model_folder, open_folder
from sightline.untrusted import read_bytes
from sightline.watch.names import matches

__all__ = ["look", "read_inputs"]

_MARKED = 3  # heads that are marked as the sharpest
_LONGEST = 80  # letters of a heading
_MOST_TEXT = 1 << 24  # bytes of a file of text; no model reads so much at once
_TEXT_SUFFIXES = frozenset(
    {".txt", ".text", ".md", ".csv", ".tsv", ".json", ".jsonl", ".html", ".xml", ".py"}
)
_RECEIVED = "The share of all weight that each patch received, averaged over the heads."


def look(
    target: Path,
    inputs: Sequence[str | Path],
    layer: str | None,
    out: Path | None,
    *,
    as_json: bool,
    typed: Sequence[str] = (),
) -> None:
    """Watch a saved model read texts or look at images, and show its heads.

    Args:
        target: Its folder.
        inputs: Texts, and the files of images.
        layer: A pattern of names.
        out: A page or a figure, or a folder of pages.
        as_json: Print an object instead of a table.
        typed: The inputs before files of text were read: pages are called after files.
    """
    opened = _opened(target)
    sources = [Path(x) if x != "-" and _is_file(Path(x)) else x for x in typed] or inputs
    found = [_watched(opened, given, layer) for given in inputs]
    tables = [head_table(watched.seen) for watched in found]
    if as_json:
        objects = [_as_object(watched, table) for watched, table in zip(found, tables, strict=True)]
        printed = objects[0] if len(objects) == 1 else {"inputs": objects}
        print_json(printed)
    else:
        for watched, table, source in zip(found, tables, sources, strict=True):
            read = source.name if isinstance(source, Path) else _short(watched.text)
            _print(watched, table, read if len(found) > 1 or watched.grid is not None else "")
    if out is not None:
        paths = [out] if out.suffix else [out / f"{name}.html" for name in output_names(sources)]
        for path, watched in zip(paths, found, strict=True):
            _write(path, watched)
        print_paths(paths)


def read_inputs(inputs: Sequence[str]) -> list[str | Path]:
    """What was typed: a text, the file of an image, a file of text, or - for a text on standard input."""
    found: list[str | Path] = []
    for text in inputs:
        path = Path(text)
        if text == "-":
            found.append(sys.stdin.read())
        elif path.suffix.lower() in IMAGE_SUFFIXES and (_is_file(path) or not re.search(r"\s", text)):
            found.append(path)
        elif _is_file(path):
            try:
                found.append(read_bytes(path, at_most=_MOST_TEXT).decode("utf-8"))
            except UnicodeDecodeError:
                raise ValueError(
                    f"{text!r} is neither an image nor a text in UTF-8; give it one of them"
                ) from None
        elif _looks_like_a_file(text):
            raise ValueError(f"there is no file {text!r}; give it a file that exists, or a text of words")
        else:
            found.append(text)
    return found


def _looks_like_a_file(text: str) -> bool:
    """Whether one word ends as files of text do, or in any suffix after a folder."""
    suffix = Path(text).suffix.lower()
    has_folder = "/" in text or os.sep in text
    is_file = suffix in _TEXT_SUFFIXES or (has_folder and re.fullmatch(r"\.[a-z]\w{0,4}", suffix))
    return bool(is_file) and not re.search(r"\s", text)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a text that is too long to be a name
        return False


def _opened(target: Path) -> FolderModel:
    """Open the target, whatever it is."""
    if not target.is_dir():
        kind = "is a file, not a folder" if target.exists() else "does not exist"
        raise ValueError(f"look needs a folder with a model, {str(target)!r} {kind}")
    if not is_model_folder(target):
        raise ValueError(
            f"there is no config.json in {str(target)!r}; look takes a run that `sightline train` wrote, or "
            "a Hugging Face folder, as model.save_pretrained and tokenizer.save_pretrained write it"
        )
    return open_folder(target)


def _watched(opened: FolderModel, given: str | Path, layer: str | None) -> WatchedModel:
    """Watch it read."""
    names: list[str] = []

    def chosen(name: str) -> bool:
        names.append(name)
        return layer is None or matches(name, layer)

    watched = opened.watch(given, chosen)
    if not watched.seen:
        if names and layer is not None:
            raise ValueError(f"no layer matches {layer!r}; this model has {', '.join(dict.fromkeys(names))}")
        raise ValueError(watched.seen.explanation())
    return dataclasses.replace(watched, is_part=layer is not None)


def _write(path: Path, watched: WatchedModel) -> None:
    if path.suffix.lower() in FIGURES:
        save_figure(_figure(watched), path)
        return
    page = show.page(
        watched.seen,
        tokens={name: (watched.queries[name], watched.keys[name]) for name in watched.keys},
        image=watched.grid,
        title=_short(watched.text),
        model=watched.title,
        figures=_image_figures(watched),
    )
    save_text(page.html(), path)


def _short(text: str) -> str:
    """A text as a heading."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _figure(watched: WatchedModel) -> Figure:
    layers = by_layer(watched.seen)
    if len(layers) == 1:
        ((name, sight),) = layers.items()
        return show.heads(sight, *watched.sides_of(name, sight))
    over_image = _received(watched)
    return show.entropy(watched.seen) if over_image is None else over_image


def _image_figures(watched: WatchedModel) -> Figures:
    figure = _received(watched)
    return {} if figure is None else {"What the patches received": (figure, _RECEIVED)}


def _received(watched: WatchedModel) -> Figure | None:
    """The image with what its patches received, layer by layer; None if it read none, or not as patches."""
    grid = watched.grid
    if grid is None:
        return None
    n = len(grid)
    layers = [x for x in by_layer(watched.seen).values() if x.s >= n]
    if not layers:
        return None
    received = [x.received.reshape(-1, x.s).mean(0)[-n:].float() for x in layers]
    shares = torch.stack([x / x.sum().clamp(min=1e-30) for x in received])
    return received_by_layer(grid.image, shares, (grid.rows, grid.columns), title=watched.text)


def _as_object(watched: WatchedModel, table: Sequence[Head]) -> dict[str, Any]:
    marked = sharpest(table, _MARKED)
    heads = [dataclasses.asdict(head) | {"sharpest": head in marked} for head in table]
    read = {"text": watched.text} if watched.grid is None else {"image": watched.text}
    return {"model": watched.title, **read, "keys": dict(watched.keys), "heads": heads}


def _print(watched: WatchedModel, table: Sequence[Head], source: str) -> None:
    """The table of heads under what was read, if that is to be said; a star marks the sharpest."""
    marked = sharpest(table, _MARKED)
    printed = Table(title=None, box=None, pad_edge=False)
    printed.add_column("layer", no_wrap=True)
    for column in ("head", "entropy", "evenness", "distance", "first", "peak"):
        printed.add_column(column, justify="right", no_wrap=True)
    printed.add_column("")
    for head in table:
        star = "* sharp" if head in marked else ""
        printed.add_row(plain_text(head.layer or "(the model itself)"), *head_cells(head), star)
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    read = f"{len(next(iter(watched.keys.values())))} tokens"
    read = f"{source}, {read}" if source else read
    console.print(plain_text(watched.title), plain_text(read), sep=": ")
    console.print(printed)
    console.print(plain_text(HEADS_LEGEND), soft_wrap=True)
    console.print(
        plain_text(
            f"* sharp: the {len(marked)} heads of the lowest evenness, looking at few of the tokens they may."
        )
    )
