"""``sightline look`` of a translator: what it looked at for every word, and every head of every layer."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sightline.cli.files import replacing, save
from sightline.cli.runs import Look
from sightline.cli.translate_layers import SELF, Layer, asked_for, layers_of, whole
from sightline.cli.translate_run import TranslateRun, open_run
from sightline.decode.translations import Translation
from sightline.show.alignment import arcs
from sightline.show.document import document, drawn, escaped, figure_tag

__all__ = ["check_written", "layers_of", "look", "page", "picture"]

_PAGES = (".html", ".htm")


def look(run: Path, given: str, wanted: Look) -> None:
    """Translate a text and show where it looked: a table, a figure or a page."""
    opened = open_run(run, wanted.device)
    text = given.strip()
    opened.check([text], unknown=False)
    (one,) = opened.translate([text], width=wanted.beam, look=True)
    asked = asked_for(opened, layers_of(opened, one), wanted.layer, wanted.head)
    everything = wanted.layer is None and wanted.head is None
    as_page = wanted.out is not None and wanted.out.suffix.lower() in _PAGES
    if wanted.out is not None:
        check_written(one)
        if not as_page and not everything:
            _check_one(asked, wanted)
    if wanted.as_json:
        typer.echo(json.dumps(_as_object(one, asked), ensure_ascii=False))
    else:
        _print(one, [whole(opened, one)] if everything else asked, hint=everything and wanted.out is None)
    if wanted.out is None:
        return
    if as_page:
        with replacing(wanted.out) as beside:
            beside.write_text(_page(opened, one, asked, everything=everything), encoding="utf-8")
    else:
        save(whole(opened, one).drawn(one.text) if everything else _titled(one, asked[0]), wanted.out)
    typer.echo(wanted.out, err=wanted.as_json)


def check_written(one: Translation) -> None:
    """Refuse to draw where no word was written, so nothing was looked at."""
    if not one.written:
        raise ValueError(f"{one.source!r} was translated to no word, there is nothing to draw; train longer")


def picture(run: TranslateRun, one: Translation, head: int | None) -> Figure:
    """What each word looked at: one head, counted through the layers, or the mean of all."""
    if head is None:
        return whole(run, one).drawn(one.text)
    (layer,) = asked_for(run, layers_of(run, one), None, head)
    return _titled(one, layer)


def page(run: TranslateRun, one: Translation, head: int | None = None) -> str:
    """All of it on one page, or one head, counted through the layers; everything inside."""
    return _page(run, one, asked_for(run, layers_of(run, one), None, head), everything=head is None)


def _page(run: TranslateRun, one: Translation, layers: Sequence[Layer], *, everything: bool) -> str:
    figures = []
    if everything:
        first = whole(run, one)
        said = f", {first.said}" if first.said else ""
        caption = f"What each written word (down) looked at in the source (across){said}."
        figures.append((first.drawn(""), caption))
        layers = [layer for layer in layers if layer.weights.size(0) > 1 or layer.kind == SELF]
    for layer in layers:
        heads = layer.weights.size(0)
        if layer.kind == SELF:
            averaged = ", heads averaged" if heads > 1 else ""
            caption = f"{layer.said}: which words look at which{averaged}."
            figures.append((arcs(layer.weights.mean(0), layer.keys), caption))
        apart = ", head by head" if heads > 1 else ""
        figures.append((layer.drawn(""), f"{layer.said}: {layer.kind}{apart}."))
    body = [f"<h1>{escaped(one.text)}</h1>", f"<p>{escaped(one.source)}</p>"]
    body += [
        figure_tag(drawn(figure), alt=caption, caption=caption, inches=figure.get_figwidth())
        for figure, caption in figures
    ]
    about = f"A {run.model.config.architecture} translator, from the run {run.folder.name!r}."
    body.append(f'<p class="soft">{escaped(about)}</p>')
    return document(one.text, "\n".join(body))


def _titled(one: Translation, layer: Layer) -> Figure:
    return layer.drawn(f"{one.text}: {layer.said}")


def _check_one(layers: Sequence[Layer], wanted: Look) -> None:
    """Refuse one figure of several layers."""
    if len(layers) > 1:
        names = ", ".join(layer.name for layer in layers)
        raise ValueError(
            f"a figure shows one layer, --layer {wanted.layer!r} fits {len(layers)}: {names}; name one of "
            "them, or write a page with --out page.html"
        )


def _as_object(one: Translation, layers: Sequence[Layer]) -> dict[str, Any]:
    return {
        "source": one.source,
        "translation": one.text,
        "read": one.read,
        "written": one.written,
        "layers": {layer.name: layer.weights.tolist() for layer in layers},
    }


def _print(one: Translation, layers: Sequence[Layer], *, hint: bool) -> None:
    """A table for each layer: what every word looked at most."""
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    console.print(Text(one.text))
    for layer in layers:
        table = Table(title=None, box=None, pad_edge=False)
        for name in ("word" if layer.queries is layer.keys else "written", "looked at"):
            table.add_column(name, no_wrap=True)
        for name in ("weight", "entropy"):
            table.add_column(name, justify="right", no_wrap=True)
        for word, row in zip(layer.queries, layer.weights.mean(0), strict=True):
            at = int(row.argmax())
            entropy = -float((row * row.clamp_min(1e-30).log()).sum())
            table.add_row(Text(word), Text(layer.keys[at]), f"{float(row[at]):.3f}", f"{entropy:.2f}")
        console.print(table)
        said = [layer.said] if layer.said else []
        said += ["heads averaged"] if layer.weights.size(0) > 1 else []
        said += ["entropy in nats"]
        said += ["--out page.html shows every head"] if hint and layer.said else []
        console.print(Text("; ".join(said)), soft_wrap=True)
