"""The explorer as a page: one HTML file that holds all it shows and opens anywhere, offline."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from sightline.look.notebook import Html
from sightline.show.explorer.answers import Answers
from sightline.show.explorer.layers import Shown, Tokens
from sightline.show.explorer.steps import Step
from sightline.show.explorer.stored import store
from sightline.show.html import render, script_json
from sightline.show.records import AttentionRecord
from sightline.untrusted import check_unicode

__all__ = ["Figures", "Page", "embed", "page"]

Figures = Mapping[str, tuple[Figure, str]]  # heading: figure and caption
_ROOM = 2_300_000  # characters of the maps in a page
_TOKENS = 100_000  # of a text whose words a page holds; those of a longer one are numbered
_FRAME = 760  # pixels, the height of a page inside a notebook


class Page:
    """What was seen, as views that can be walked through.

    As the last line of a notebook's cell it shows itself: live where anywidget is installed, each level
    computed when it is looked at; else as a frame with the saved page.

    Example:
        >>> model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> with sl.watch(model, keep=True) as seen:
        ...     y = model(torch.randn(1, 5, 8))
        >>> page = sl.show.page(seen, tokens=["a", "few", "words", "of", "text"])
        >>> type(page).__name__, "few" in page.html()
        ('Page', True)
    """

    def __init__(self, answers: Answers, *, max_bytes: int = _ROOM, figures: Figures | None = None) -> None:
        self.answers = answers
        self._max_bytes, self._figures = max_bytes, figures or {}
        self._html: str | None = None

    def html(self) -> str:
        """The page as a text."""
        if self._html is None:
            self._html = render(
                "explorer.html",
                title=self.answers.title,
                has_explorer=True,
                explorer=embed(self.answers, max_bytes=self._max_bytes, options={"address": True}),
                figures=[(heading, figure, text) for heading, (figure, text) in self._figures.items()],
            )
        return self._html

    def save(self, path: str | Path) -> None:
        """Write the page to a file."""
        check_unicode(Path(path), "a page")
        Path(path).write_bytes(self.html().encode(errors="replace"))

    def widget(self) -> Any:
        """The explorer as a widget, live; anywidget has to be installed."""
        from sightline.show.explorer.widget import make_widget  # noqa: PLC0415

        return make_widget(self.answers)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """What a notebook shows."""
        try:
            widget = self.widget()
        except ImportError:
            return {"text/html": self._frame(), "text/plain": repr(self)}
        return widget._repr_mimebundle_(**options)

    def _display_(self) -> Any:
        """What a marimo notebook shows, which takes the widget as it is."""
        try:
            return self.widget()
        except ImportError:
            return Html(self._frame())

    def _frame(self) -> str:
        held = html.escape(self.html(), quote=True)
        return (
            f'<iframe srcdoc="{held}" title="{html.escape(self.answers.title)}" loading="lazy" '
            f'style="width: 100%; height: {_FRAME}px; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        """What it shows."""
        layers = [layer for layer in self.answers.layers if not layer.is_summary]
        n = sum(layer.n_heads for layer in layers)
        what = "1 layer" if len(layers) == 1 else f"{len(layers)} layers"
        return f"Page({self.answers.title!r}: {what}, {n} heads); .save(path)"


def page(
    shown: Shown,
    *,
    tokens: Tokens | None = None,
    image: Any = None,
    grid: tuple[int, int] | None = None,
    item: int = 0,
    layers: Mapping[str, AttentionRecord] | None = None,
    title: str = "",
    model: str = "",
    steps: Sequence[Step] | None = None,
    other: Shown | None = None,
    other_tokens: Tokens | None = None,
    other_image: Any = None,
    names: tuple[str, str] = ("before", "after"),
    figures: Figures | None = None,
    max_bytes: int = _ROOM,
) -> Page:
    """The explorer of what was seen: words, all heads, the matrix with deep zoom, lines, the image.

    Args:
        shown: What :func:`sightline.watch` gave, a sight, sights by name, or a prediction with its attention;
            q and k kept, so that every question can be answered.
        tokens: Of one text, of each text of the batch, or by layer (a pattern will do) a pair of names of
            queries and of keys. Default: those that ``watch(tokens=...)`` was told.
        image: What the model looked at: a path, pixels ``(C, h, w)``, a PIL image, or a grid of patches.
        grid: Rows and columns of its patches, where the image does not say so.
        item: Which item of the batch.
        layers: Of a prediction, every attention of the model, ``run.layers(prediction)``; they follow the
            summary of its own.
        title: A heading.
        model: Which model it is.
        steps: The steps of a decoding, one per written token, to be played like a film.
        other: The same of another model, of another input, or after an edit, to compare with; layers and
            heads go by their numbers, and texts may be of different length.
        other_tokens: Its tokens. Default: those that its ``watch`` was told, else ``tokens``.
        other_image: What it looked at. Default: the image of a prediction, else ``image``.
        names: What to call the two.
        figures: Further figures below the views of a saved page: heading, then figure and caption.
        max_bytes: How large a saved page's maps may be, about; what does not fit is stored coarser, and the
            page says so.

    Example:
        >>> x = torch.randn(1, 2, 5, 8)
        >>> page(sl.look(x, x, x), tokens="the cat sat on it".split())
        Page('Attention': 1 layer, 2 heads); .save(path)
    """
    answers = Answers(
        shown,
        tokens=tokens,
        image=image,
        grid=grid,
        item=item,
        layers=layers,
        title=title,
        model=model,
        steps=steps,
        other=other,
        other_tokens=other_tokens,
        other_image=other_image,
        names=names,
    )
    return Page(answers, max_bytes=max_bytes, figures=figures)


def embed(answers: Answers, *, max_bytes: int = _ROOM, options: Mapping[str, Any] | None = None) -> Markup:
    """An explorer inside a page: an empty element and its data; the page's script fills it.

    Args:
        answers: What it shows.
        max_bytes: How many characters its maps may take.
        options: Of ``mount``: ``views``, ``address``, ``compact``.
    """
    every = [answers.layers, *answers.others]
    kept = [store(layers, max_bytes // len(every)) for layers in every]
    numbers = [answers.answer({"ask": "overview", "size": 1, "of": i}) for i in range(len(every))]
    data = {
        "meta": answers.meta(most_tokens=_TOKENS) | {"stored": kept[0].note},
        "stored": [
            one.data | {"heads": [layer["heads"] for layer in found["sights"]]}
            for one, found in zip(kept, numbers, strict=True)
        ],
        "options": dict(options or {}),
    }
    element = '<div></div><script type="application/json" data-explorer>{}</script>'
    return Markup(element).format(script_json(data))  # noqa: S704 - nothing but our own tags
