"""The page of a watched model: its heads in figures and in a table."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from sightline.look.heads import Head, by_layer
from sightline.look.seen import Seen
from sightline.look.sight import Sight
from sightline.show.html import render
from sightline.show.layers import entropy
from sightline.show.mass import received
from sightline.show.seen_figures import LayerTokens, layer_heads, layer_tokens

__all__ = ["HEADS_LEGEND", "Figures", "head_cells", "heads_page", "listed"]

Figures = Mapping[str, tuple[Figure, str]]  # heading: figure and caption
HEADS_LEGEND = (
    "entropy: of a query's weights, in nats; evenness: the entropy as a share of what it would be if the "
    "query looked at all it may alike, causality and padding counted; distance: how many tokens away it "
    "looks; first: the share of all weight on the first token, the attention sink; peak: a query's largest "
    "weight. All are means over the queries."
)
_ENTROPY = (
    "The entropy of each head's weights, in nats, averaged over its queries. Dark heads look at few tokens, "
    "bright ones at many."
)
_RECEIVED = (
    "The share of all weight that each token received in {layer}, the layer of the sharpest head, "
    "averaged over its heads."
)
_HEADS = "Each head's weights, queries down and keys across, with its number and entropy."
_MODEL = "the model itself"  # a layer without a name
_MOST_GRIDS = 8  # layers whose heads are drawn on one page
_LONGEST = 400  # letters of a text that is quoted


def heads_page(
    title: str,
    *,
    text: str,
    seen: Seen | Mapping[str, Sight],
    tokens: Mapping[str, LayerTokens],
    heads: Sequence[Head],
    marked: Sequence[Head],
    is_part: bool = False,
    about: str = "",
    figures: Figures | None = None,
) -> str:
    """The page of a watched model: entropies, what tokens received, heads in figures, a table of all heads.

    Args:
        title: The heading, such as the name of the model.
        text: What the model read.
        seen: What was recorded, q and k kept.
        tokens: For each layer, names of its queries and of its keys.
        heads: The rows of the table, from :func:`sightline.look.heads.head_table`.
        marked: The sharpest of them, sharpest first: in bold; what the first one's layer received is drawn.
        is_part: Whether only some layers were chosen: then the heads of all of them are drawn, up to eight;
            else those of the layer with the sharpest head.
        about: A line about the model, at the end.
        figures: More figures, before the others.
    """
    layers = by_layer(seen)
    sharp = marked[0].layer
    chosen = list(layers) if is_part and len(layers) <= _MOST_GRIDS else [sharp]
    drawn = dict(figures or {}) | {"How sharp each head is": (entropy(seen), _ENTROPY)}
    keys = layer_tokens(tokens, sharp, layers[sharp])[1]
    drawn["What the tokens received"] = (
        received(layers[sharp], keys),
        _RECEIVED.format(layer=sharp or _MODEL),
    )
    for name in chosen:
        drawn[f"The heads of {name or _MODEL}"] = (layer_heads(name, layers[name], tokens), _HEADS)
    return render(
        "heads.html",
        title=title,
        text=text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…",
        figures=listed(drawn),
        legend=HEADS_LEGEND,
        marked=len(marked),
        rows=[(head in marked, [head.layer or _MODEL, *head_cells(head)]) for head in heads],
        about=about,
    )


def head_cells(head: Head) -> list[str]:
    """The numbers of a head as a table prints them: head, entropy, evenness, distance, first, peak."""
    distance = "-" if head.distance is None else f"{head.distance:.2f}"
    evenness = "-" if head.evenness is None else f"{head.evenness:.1%}"
    cells = [str(head.head), f"{head.entropy:.3f}", evenness, distance]
    return [*cells, f"{head.first:.1%}", f"{head.peak:.3f}"]


def listed(figures: Figures | None) -> list[tuple[str, Figure, str]]:
    """Heading, figure and caption of each, as templates take them."""
    return [(heading, figure, caption) for heading, (figure, caption) in (figures or {}).items()]
