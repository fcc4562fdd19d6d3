"""``sightline look`` of a translator: what it looked at for every word, and every head of every layer."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import typer
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from sightline.cli.files import replacing, save
from sightline.cli.runs import Look
from sightline.cli.translate_run import TranslateRun, open_run
from sightline.data.tokens import BOS
from sightline.decode.translations import Translation
from sightline.look.watch import watch
from sightline.models.translator import Translator
from sightline.shapes import Float
from sightline.show.alignment import alignment, arcs, head_grid, heads_mean
from sightline.show.document import document, drawn, escaped, figure_tag

__all__ = ["check_written", "look", "page"]


@dataclass(frozen=True)
class Layer:
    """The weights of one attention in a Transformer, and the words on its sides."""

    name: str
    weights: Float[Tensor, "H T S"]
    queries: list[str]
    keys: list[str]


def look(run: Path, given: str, wanted: Look) -> None:
    """Translate a text and show where it looked: a table, a figure or a page."""
    opened = open_run(run, wanted.device)
    text = given.strip()
    opened.check([text], unknown=False)
    (one,) = opened.translate([text], width=wanted.beam, look=True)
    layers = _chosen(opened, layers_of(opened, one), wanted.layer)
    assert one.weights is not None  # noqa: S101  asked for
    weights = heads_mean(one.weights if wanted.layer is None else layers[0].weights, wanted.head)
    if wanted.as_json:
        typer.echo(json.dumps(_as_object(one, layers), ensure_ascii=False))
    else:
        _print(one, weights if wanted.layer is None else one.weights.mean(0))
    if wanted.out is None:
        return
    check_written(one)
    if wanted.out.suffix.lower() in {".html", ".htm"}:
        with replacing(wanted.out) as beside:
            beside.write_text(page(opened, one), encoding="utf-8")
    else:
        save(_figure(one, layers, weights, wanted), wanted.out)
    typer.echo(wanted.out, err=wanted.as_json)


def layers_of(run: TranslateRun, one: Translation) -> list[Layer]:
    """Every attention of a Transformer while it reads and writes; a recurrent model has the one it showed."""
    assert one.weights is not None  # noqa: S101  whoever shows has asked to look
    model = run.model
    if not isinstance(model, Translator):
        return [Layer("attention", one.weights, one.written, one.read)]
    tokens, device = run.tokens, next(model.parameters()).device
    source = torch.tensor([tokens.read(one.source)], device=device)
    begun = ["<bos>", *one.written][: model.config.max_length]  # one that never ended has no step after it
    ids = [BOS, *(tokens.target.inner.token_to_id(word) for word in begun[1:])]
    with torch.no_grad(), watch(model, keep=True) as seen:
        model(source, torch.tensor([ids], device=device))
    found = []
    for name in seen.names():
        sight = seen.calls(name)[0]
        weights = sight.rows(list(range(sight.t)))[0].cpu()  # (H, T, S)
        if name.startswith("encoder"):
            found.append(Layer(name, weights, one.read, one.read))
        elif name.endswith("multihead_attn"):  # step t has read word t - 1 and writes word t
            found.append(Layer(name, weights, [*one.written, "<eos>"][: len(begun)], one.read))
        else:
            found.append(Layer(name, weights, begun, begun))
    return found


def check_written(one: Translation) -> None:
    """Refuse to draw where no word was written, so nothing was looked at."""
    if not one.written:
        raise ValueError(f"{one.source!r} was translated to no word, there is nothing to draw; train longer")


def page(run: TranslateRun, one: Translation) -> str:
    """All of it on one page, everything inside."""
    assert one.weights is not None  # noqa: S101  whoever shows has asked to look
    figures = [
        (
            alignment(one.weights.mean(0), one.read, one.written),
            "What each written word (down) looked at in the source (across), all heads averaged.",
        )
    ]
    for layer in layers_of(run, one):
        if layer.name.startswith("encoder"):
            figures.append(
                (
                    arcs(layer.weights.mean(0), layer.keys),
                    f"{layer.name}: which words look at which, heads averaged.",
                )
            )
        if layer.weights.size(0) > 1:
            kind = "cross-attention" if "multihead" in layer.name else "self-attention"
            kind = "causal " + kind if layer.name.startswith("decoder") and kind[0] == "s" else kind
            figures.append(
                (head_grid(layer.weights, layer.queries, layer.keys), f"{layer.name}: {kind}, head by head.")
            )
    body = [f"<h1>{escaped(one.text)}</h1>", f"<p>{escaped(one.source)}</p>"]
    body += [
        figure_tag(drawn(figure), alt=caption, caption=caption, inches=figure.get_figwidth())
        for figure, caption in figures
    ]
    body.append(f'<p class="soft">{escaped(run.folder.name)}: {escaped(run.model.config.architecture)}</p>')
    return document(one.text, "\n".join(body))


def _chosen(run: TranslateRun, layers: list[Layer], pattern: str | None) -> list[Layer]:
    """The layers of this name, or those of the decoder's cross-attention of this number."""
    if pattern is None:
        return layers
    number = f"decoder.layers.{pattern}.multihead_attn"
    found = [layer for layer in layers if layer.name == number or f".{pattern}." in f".{layer.name}."]
    found.sort(key=lambda layer: layer.name != number)
    if not found:
        raise ValueError(
            f"no layer of {str(run.folder)!r} matches {pattern!r}; it has "
            f"{', '.join(layer.name for layer in layers)}"
        )
    return found


def _figure(one: Translation, layers: list[Layer], weights: Tensor, wanted: Look) -> Figure:
    if wanted.layer is None:
        return alignment(weights, one.read, one.written, title=one.text)
    layer = layers[0]
    if wanted.head is not None or layer.weights.size(0) == 1:
        return alignment(weights, layer.keys, layer.queries, title=layer.name)
    return head_grid(layer.weights, layer.queries, layer.keys, title=layer.name)


def _as_object(one: Translation, layers: list[Layer]) -> dict[str, Any]:
    return {
        "source": one.source,
        "translation": one.text,
        "read": one.read,
        "written": one.written,
        "layers": {layer.name: layer.weights.tolist() for layer in layers},
    }


def _print(one: Translation, weights: Tensor) -> None:
    table = Table(title=None, box=None, pad_edge=False)
    for name in ("written", "looked at"):
        table.add_column(name, no_wrap=True)
    for name in ("weight", "entropy"):
        table.add_column(name, justify="right", no_wrap=True)
    for word, row in zip(one.written, weights, strict=True):
        at = int(row.argmax())
        entropy = -float((row * row.clamp_min(1e-30).log()).sum())
        table.add_row(Text(word), Text(one.read[at]), f"{float(row[at]):.3f}", f"{entropy:.2f}")
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    console.print(Text(one.text))
    console.print(table)
    console.print(Text("heads averaged; entropy in nats; --out page.html shows every head"), soft_wrap=True)
