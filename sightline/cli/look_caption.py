"""``sightline look`` of a captioner: where it looked for every word of its caption."""

import json
import sys
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sightline import show
from sightline.cli.caption_run import CaptionRun, open_run, read_pictures, told
from sightline.cli.files import replacing, save
from sightline.cli.runs import Look
from sightline.evaluate.said import say
from sightline.show.document import document, escaped
from sightline.show.gallery import HOW
from sightline.show.overlay_page import page_parts, told_tag
from sightline.show.told import Told

__all__ = ["look", "page"]


def look(run: Path, given: str, wanted: Look) -> None:
    """Caption a picture and show where each word looked: a table, a figure or a page."""
    opened = open_run(run, wanted.device)
    picture = read_pictures([Path(given)], opened.size)
    layers = [_layer(opened, wanted.layer)] if wanted.layer is not None else True
    said = next(say(opened.model, opened.tokenizer, picture, beam=wanted.beam, look=layers))[0]
    shown = told(opened, picture[0], said, name=Path(given).name)
    maps = shown.maps(wanted.head)  # refuses a head that is not there
    if wanted.as_json:
        typer.echo(json.dumps(_as_object(shown, given), ensure_ascii=False))
    else:
        _print(shown, maps)
    if wanted.out is None:
        return
    if wanted.out.suffix.lower() in {".html", ".htm"}:
        with replacing(wanted.out) as beside:
            beside.write_text(page(shown, opened), encoding="utf-8")
    else:
        save(show.overlay(shown, head=wanted.head), wanted.out)
    typer.echo(wanted.out, err=wanted.as_json)


def page(shown: Told, run: CaptionRun) -> str:
    """The interactive page of one picture: its words to be pointed at, everything inside."""
    config = run.model.config
    rows, columns = run.model.grid
    heads = shown.weights.size(1)
    of_layers = f", {config.n_heads} of each layer" if heads > config.n_heads else ""
    about = (
        f"{run.folder.name}: encoder {config.encoder}, decoder {config.decoder}. The model sees the picture "
        f"as {rows} x {columns} patches; these are the weights of its attention over them, heads: "
        f"{heads}{of_layers}."
    )
    body = [
        f"<h1>{escaped(shown.caption)}</h1>",
        f"<p>{escaped(HOW)}</p>",
        told_tag(shown, "told0", first=shown.telling_word, wide=448),
        f'<p class="soft">{escaped(about)}</p>',
    ]
    return document(shown.caption, "\n".join(body), **page_parts())


def _layer(run: CaptionRun, given: str) -> int:
    config = run.model.config
    n_layers = config.n_layers if config.decoder == "transformer" else 1
    if not given.isdecimal() or int(given) >= n_layers:
        raise ValueError(
            f"--layer must be a number between 0 and {n_layers - 1}, the layers of the decoder, got {given!r}"
        )
    return int(given)


def _as_object(shown: Told, given: str) -> dict[str, Any]:
    return {
        "image": given,
        "caption": shown.caption,
        "words": list(shown.words),
        "grid": list(shown.grid),
        "weights": shown.weights.tolist(),  # words x heads x patches
    }


def _print(shown: Told, maps: Any) -> None:
    rows, columns = shown.grid
    table = Table(title=None, box=None, pad_edge=False)
    table.add_column("word", no_wrap=True)
    for name in ("largest weight", "row", "column", "entropy"):
        table.add_column(name, justify="right", no_wrap=True)
    for word, weights in zip(shown.words, maps, strict=True):
        row, column = divmod(int(weights.argmax()), columns)
        entropy = -float((weights * weights.clamp_min(1e-30).log()).sum())
        table.add_row(Text(word), f"{float(weights.max()):.3f}", str(row), str(column), f"{entropy:.2f}")
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    console.print(Text(shown.caption))
    console.print(table)
    console.print(
        Text(
            f"of {rows} x {columns} patches, from the top left; entropy in nats; --out page.html shows them"
        ),
        soft_wrap=True,
    )
