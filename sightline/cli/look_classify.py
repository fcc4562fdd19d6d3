"""``sightline look`` of a classifier: rollout, heads, what each layer received, how far heads look."""

import json
import sys
from pathlib import Path
from typing import Any

import typer
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sightline.cli.classify import guesses
from sightline.cli.classify_run import open_run, read_pictures
from sightline.cli.files import replacing, save
from sightline.cli.runs import Look
from sightline.evaluate.glance import Glance, glance
from sightline.show.document import document, drawn, escaped, figure_tag
from sightline.show.vit import class_heads, distances, layer_mass, rolled

__all__ = ["look"]

_TOP = 5


def look(run: Path, given: str, wanted: Look) -> None:
    """Classify a picture and show where the model looked: a table of heads, a figure or a page."""
    opened = open_run(run, wanted.device)
    picture = read_pictures([Path(given)], opened)
    layers = _layers(wanted.layer, opened.model.config.n_layers)
    if wanted.head is not None:
        raise ValueError(f"a classifier's figure shows all heads, got --head {wanted.head}; leave it out")
    if wanted.beam != Look.beam:
        raise ValueError(f"a classifier searches nothing, got --beam {wanted.beam}; leave it out")
    seen = glance(opened.model, picture)
    best = guesses(opened.model.predict(picture, views=opened.data.views), opened.names, _TOP)[0]
    name, share = best[0]
    title = f"{name} {share:.2f}"
    if wanted.as_json:
        typer.echo(json.dumps(_as_object(seen, given, best), ensure_ascii=False))
    else:
        _print(seen, best)
    if wanted.out is None:
        return
    if wanted.out.suffix.lower() in {".html", ".htm"}:
        figures = {
            "Rollout": (
                rolled(picture[0], seen),
                "What is classified, traced down to the patches through all layers.",
            ),
            "Heads": (class_heads(picture[0], seen, layers=layers), _asked(seen)),
            "Received": (layer_mass(picture[0], seen), "The share of all weight that each patch received."),
            "Distance": (distances(seen.distance), "Each dot is a head: how far away it looks from a patch."),
        }
        with replacing(wanted.out) as beside:
            beside.write_text(_page(title, figures), encoding="utf-8")
    elif layers is not None:
        save(class_heads(picture[0], seen, layers=layers, title=title), wanted.out)
    else:
        save(rolled(picture[0], seen, title=title), wanted.out)
    typer.echo(wanted.out, err=wanted.as_json)


def _layers(given: str | None, n_layers: int) -> list[int] | None:
    if given is None:
        return None
    if not given.isdecimal() or int(given) >= n_layers:
        raise ValueError(f"--layer must be a number between 0 and {n_layers - 1}, got {given!r}")
    return [int(given)]


def _asked(seen: Glance) -> str:
    who = "the class token" if seen.with_token else "the patches, on average,"
    return f"What {who} looked at, by layer and head; on one scale."


def _page(title: str, figures: dict[str, tuple[Figure, str]]) -> str:
    parts = [f"<h1>{escaped(title)}</h1>"]
    for name, (figure, caption) in figures.items():
        parts.append(f"<h2>{escaped(name)}</h2>")
        inches = float(figure.get_figwidth())
        parts.append(figure_tag(drawn(figure), alt=name, caption=caption, inches=inches))
    return document(title, "\n".join(parts))


def _as_object(seen: Glance, given: str, best: list[tuple[str, float]]) -> dict[str, Any]:
    return {
        "image": given,
        "class": best[0][0],
        "guesses": dict(best),
        "grid": list(seen.grid),
        "rollout": seen.rollout[0].tolist(),
        "heads": seen.heads[0].tolist(),  # layers x heads x patches
        "received": seen.received[0].tolist(),  # layers x patches
        "distance": seen.distance.tolist(),  # layers x heads, in pixels
    }


def _print(seen: Glance, best: list[tuple[str, float]]) -> None:
    rows, columns = seen.grid
    table = Table(title=None, box=None, pad_edge=False)
    for name in ("layer", "head", "largest weight", "row", "column", "entropy", "distance"):
        table.add_column(name, justify="right", no_wrap=True)
    for layer, of_layer in enumerate(seen.heads[0].cpu()):
        for head, weights in enumerate(of_layer):
            row, column = divmod(int(weights.argmax()), columns)
            entropy = -float((weights * weights.clamp_min(1e-30).log()).sum())
            numbers = (f"{float(weights.max()):.3f}", str(row), str(column), f"{entropy:.2f}")
            table.add_row(str(layer), str(head), *numbers, f"{float(seen.distance[layer, head]):.1f}")
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    console.print(Text(", ".join(f"{name} {share:.3f}" for name, share in best)))
    console.print(table)
    legend = (
        f"of {rows} x {columns} patches, from the top left; entropy in nats, distance in pixels; "
        "--out page.html shows them over the image"
    )
    console.print(Text(legend), soft_wrap=True)
