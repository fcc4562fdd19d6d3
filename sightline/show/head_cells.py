"""Heads as a table prints them."""

from sightline.look.heads import Head

__all__ = ["HEADS_LEGEND", "head_cells"]

HEADS_LEGEND = (
    "entropy: of a query's weights, in nats; evenness: the entropy as a share of what it would be if the "
    "query looked at all it may alike, causality and padding counted; distance: how many tokens away it "
    "looks; first: the share of all weight on the first token, the attention sink; peak: a query's largest "
    "weight. All are means over the queries."
)


def head_cells(head: Head) -> list[str]:
    """The numbers of a head as a table prints them: head, entropy, evenness, distance, first, peak."""
    distance = "-" if head.distance is None else f"{head.distance:.2f}"
    evenness = "-" if head.evenness is None else f"{head.evenness:.1%}"
    cells = [str(head.head), f"{head.entropy:.3f}", evenness, distance]
    return [*cells, f"{head.first:.1%}", f"{head.peak:.3f}"]
