"""The page that ``sightline look`` writes: the heads of a model in pictures and in a table."""

import html
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sightline import show
from sightline.cli import page as pages
from sightline.cli.mechanism import Picture
from sightline.cli.watched import Watched
from sightline.look.heads import Head, by_layer

LEGEND = (
    "entropy: of a query's weights, in nats; distance: how many tokens away it looks; first: the share of "
    "all weight on the first token, the attention sink; peak: a query's largest weight. "
    "All are means over the queries."
)
_MOST_GRIDS = 8
_TABLE = """<h2>All heads</h2>
<p>{legend}</p>
<p>In bold: the {marked} sharpest heads, those of the lowest entropy.</p>
<div class="wide"><table>
<tr><th>layer</th><th>head</th><th>entropy</th><th>distance</th><th>first</th><th>peak</th></tr>
{rows}
</table></div>
"""


def page(watched: Watched, table: Sequence[Head], marked: Sequence[Head]) -> str:
    """Write the page: entropy of all heads, what tokens received, the heads of some layers, the table.

    The layers drawn head by head are all that were chosen, up to eight; of a whole model, the one with the
    sharpest head.
    """
    pictures = _pictures(watched, marked)
    with tempfile.TemporaryDirectory() as folder:
        drawn = []
        for picture in pictures:
            path = Path(folder) / f"{picture.name}.png"
            picture.figure.savefig(path)
            drawn.append((picture, path))
        introduction = f"Where each head looked while the model read: “{_short(watched.text)}”"
        after = _table(table, marked) + f'<p class="soft">{html.escape(watched.title)}</p>'
        return pages.page(watched.name, introduction, drawn, after)


def cells(head: Head) -> list[str]:
    """The numbers of a head as they are printed."""
    distance = "-" if head.distance is None else f"{head.distance:.2f}"
    return [str(head.head), f"{head.entropy:.3f}", distance, f"{head.first:.1%}", f"{head.peak:.3f}"]


def _pictures(watched: Watched, marked: Sequence[Head]) -> list[Picture]:
    layers = by_layer(watched.seen)
    first = marked[0].layer
    chosen = list(layers) if len(layers) <= _MOST_GRIDS and watched.is_part else [first]
    pictures = [
        Picture(
            "entropy",
            "How sharp each head is",
            "The entropy of each head's weights, in nats, averaged over its queries. Dark heads look at few "
            "tokens, bright ones at many.",
            show.entropy(watched.seen),
        ),
        Picture(
            "received",
            "What the tokens received",
            f"The share of all weight that each token got in {first}, the layer of the sharpest head, its "
            "heads averaged.",
            show.received(layers[first], watched.keys_of(first)),
        ),
    ]
    for i, name in enumerate(chosen):
        pictures.append(
            Picture(
                f"heads{i}",
                f"The heads of {name}",
                "Each head's weights, queries down and keys across, with its number and entropy.",
                show.heads(layers[name], *watched.sides_of(name, layers[name])),
            )
        )
    return pictures


def _table(table: Sequence[Head], marked: Sequence[Head]) -> str:
    rows = []
    for head in table:
        kind = ' class="marked"' if head in marked else ""
        numbers = "".join(f"<td>{cell}</td>" for cell in cells(head))
        rows.append(f"<tr{kind}><td>{html.escape(head.layer)}</td>{numbers}</tr>")
    return _TABLE.format(legend=html.escape(LEGEND), marked=len(marked), rows="\n".join(rows))


def _short(text: str, most: int = 400) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
