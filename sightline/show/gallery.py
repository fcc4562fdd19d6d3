"""A page of captions: the best and the worst of a test set, every word to be pointed at."""
# until cli/ is rebuilt

import itertools
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from sightline.show.document import document, drawn, escaped, figure_tag
from sightline.show.overlay_page import page_parts, told_tag
from sightline.show.told import Told

__all__ = ["gallery", "score_table"]

HOW = (
    "Point at a word, or go through them with Tab and the arrow keys: the picture turns grey and the weights "
    "of that word glow over it; the ring marks its largest weight. A click keeps a word."
)


def gallery(
    title: str,
    sections: Mapping[str, Sequence[Told]],
    *,
    introduction: str = "",
    scores: Mapping[str, float] | None = None,
    signatures: Mapping[str, str] | None = None,
    curves: Figure | None = None,
) -> str:
    """Write a page of pictures with what was said of them, in sections.

    Args:
        title: The heading.
        sections: By heading, such as "Best" and "Worst", the pictures of each.
        introduction: Stands under the heading.
        scores: Of the whole set, for a table.
        signatures: How each score was computed.
        curves: How the model learned.
    """
    parts = [f"<h1>{escaped(title)}</h1>"]
    if introduction:
        parts.append(f"<p>{escaped(introduction)}</p>")
    if scores:
        parts.append(score_table(scores, signatures or {}))
    if curves is not None:
        alt = "The loss and the scores by training step"
        parts.append(figure_tag(drawn(curves), alt=alt, inches=float(curves.get_figwidth())))
    parts.append(f'<p class="soft">{escaped(HOW)}</p>')
    parts.append(sections_of(sections))
    return document(title, "\n".join(parts), **page_parts())


def sections_of(sections: Mapping[str, Sequence[Told]]) -> str:
    """The figures under their headings, for a page that carries ``page_parts()``."""
    parts, n = [], itertools.count()
    for heading, tellings in sections.items():
        parts.append(f"<h2>{escaped(heading)}</h2>")
        parts += [told_tag(told, f"told{next(n)}", first=told.telling_word) for told in tellings]
    return "\n".join(parts)


def score_table(scores: Mapping[str, float], signatures: Mapping[str, str]) -> str:
    """Scores with their signatures, as a table."""
    rows = "\n".join(
        f"<tr><td>{escaped(name)}</td><td>{value:.4f}</td>"
        f'<td class="text"><code>{escaped(signatures.get(name, ""))}</code></td></tr>'
        for name, value in scores.items()
    )
    head = '<tr><th>score</th><th>value</th><th class="text">how it was computed</th></tr>'
    return f'<div class="wide"><table>\n{head}\n{rows}\n</table></div>'
