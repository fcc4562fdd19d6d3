"""One object that answers every question the explorer's script asks, wherever the script runs.

A request is a JSON object, and so is its answer:

===========  ==========================================================================================
ask          what comes back
===========  ==========================================================================================
map          ``queries`` x ``keys`` at a ``size`` (rows, columns): the mean weight in each cell
row          what one ``query`` read: single weights of ``keys``, or ``size`` means over them
column       by whom one ``key`` was read, the same over ``queries``
top          the ``n`` keys that a ``query`` read most, or with ``key`` the queries that read it most
word         what a ``query`` read, or by whom a ``key`` was read, in every head of all alike layers
strips       what keys received, and the entropy of queries, along a window
overview     for each layer, or for one ``sight``: thumbnails of its heads, and what they are like
tokens       names of the tokens in a ``span`` of a ``text``
find         where a text contains some letters
===========  ==========================================================================================

``sight`` is the number of a layer, ``head`` a number or ``"mean"``. Where two are compared, ``of`` is 0, 1 or
``"difference"``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sightline.show.explorer.compare import Pair
from sightline.show.explorer.layers import Layer, Shown, Tokens, has_tokens, read_layers
from sightline.show.explorer.overview import overview
from sightline.show.explorer.picture import Picture, read_picture
from sightline.show.explorer.questions import column, map_, row, strips, top, word
from sightline.show.explorer.requests import Request
from sightline.show.explorer.steps import Step, read_steps
from sightline.show.explorer.texts import Texts
from sightline.show.records import AttentionRecord, PredictionRecord

__all__ = ["Answers"]

_QUESTIONS: dict[str, Callable[[Request], dict[str, Any]]] = {
    "map": map_,
    "row": row,
    "column": column,
    "top": top,
    "word": word,
    "strips": strips,
    "overview": overview,
}


class Answers:
    """Answers the explorer's questions about what was seen.

    Args:
        shown: What :func:`sightline.watch` gave, a sight, sights by name, or a prediction with its attention.
        tokens: Of one text, of each text of the batch, or by layer (a pattern will do) a pair of names of
            queries and of keys. Default: those that ``watch(tokens=...)`` was told.
        image: What the model looked at: a path, pixels ``(C, h, w)``, a PIL image, or a grid of patches.
        grid: Rows and columns of its patches, where the image does not say so.
        item: Which item of the batch.
        layers: Of a prediction, every attention of the model, ``run.layers(prediction)``; they follow the
            summary of its own.
        title: A heading.
        model: Which model it is.
        steps: The steps of a decoding, one per written token.
        other: The same of another model, of another input, or after an edit, to compare with; layers and
            heads go by their numbers, and texts may be of different length.
        other_tokens: Its tokens. Default: those that its ``watch`` was told, else ``tokens``.
        other_image: What it looked at. Default: the image of a prediction, else ``image``.
        names: What to call the two.

    Example:
        >>> x = torch.randn(1, 2, 5, 8)
        >>> answers = Answers(sl.look(x, x, x), tokens="the cat sat on it".split())
        >>> answers.meta()["sights"][0]["heads"]
        2
        >>> answers.answer({"ask": "map", "sight": 0, "head": "mean", "size": [5, 5]})["map"]["shape"]
        [5, 5]
    """

    def __init__(
        self,
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
    ) -> None:
        self._picture: Picture | None = read_picture(image, grid, shown)
        self.layers: list[Layer] = read_layers(
            shown, tokens=tokens, n_patches=_n_patches(self._picture), item=item, layers=layers
        )
        if grid is not None:
            _check_grid(grid, self.layers)
        self.others: list[list[Layer]] = []
        self._other_picture: Picture | None = None
        if other is not None:
            self._other_picture = read_picture(other_image, grid, other)
            n_patches = _n_patches(self._other_picture or self._picture)
            given = other_tokens if other_tokens is not None or has_tokens(other) else tokens
            self.others.append(read_layers(other, tokens=given, n_patches=n_patches, item=item))
        self._names = names
        self._pair = Pair(self.layers, self.others[0] if self.others else None, names)
        self._texts = Texts([*self.layers, *(layer for other in self.others for layer in other)])
        self._steps = read_steps(steps, self.layers)
        self.title = title or (shown.text if isinstance(shown, PredictionRecord) else "") or "Attention"
        self.model = model

    def meta(self, *, most_tokens: int = 4096) -> dict[str, Any]:
        """What there is to ask about.

        Args:
            most_tokens: The tokens of a text that is longer are asked for window by window.
        """
        return {
            "title": self.title,
            "model": self.model,
            "sights": [self._about(layer) for layer in self.layers],
            "tokens": self._texts.meta(most_tokens),
            "image": None if self._picture is None else self._picture.meta(),
            "steps": self._steps,
            "compare": self._compared(),
            "asks": [*_QUESTIONS, "tokens", "find"],
        }

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one request.

        Raises:
            ValueError: If there is no such question, layer, head or token: one sentence.
        """
        if not isinstance(request, Mapping):
            raise ValueError(f"a request is a JSON object, got {type(request).__name__}")  # noqa: TRY004
        ask = request.get("ask")
        if ask == "tokens":
            return self._texts.window(request)
        if ask == "find":
            return self._texts.find(request)
        if not isinstance(ask, str) or ask not in _QUESTIONS:
            known = ", ".join(map(repr, [*_QUESTIONS, "tokens", "find"]))
            raise ValueError(f"a request asks for one of {known}, got {ask!r}")
        return self._pair.answer(_QUESTIONS[ask], request)

    def _compared(self) -> dict[str, Any] | None:
        """The names and the layers of the other, and its image where it is another; None without one."""
        if not self.others:
            return None
        picture = self._other_picture
        return {
            "names": list(self._names),
            "sights": [self._about(layer) for layer in self.others[0]],
            "image": None if picture is None else picture.meta(),
        }

    def _about(self, layer: Layer) -> dict[str, Any]:
        queries, keys = self._texts.of(layer)
        return {
            "name": layer.name,
            "heads": layer.n_heads,
            "t": layer.sight.t,
            "s": layer.sight.s,
            "causal": layer.is_causal,
            "cross": layer.is_cross,
            "summary": layer.is_summary,
            "queries": queries,
            "keys": keys,
            "query_patches": layer.query_patches,
            "key_patches": layer.key_patches,
        }


def _n_patches(picture: Picture | None) -> int | None:
    return None if picture is None else picture.n_patches


def _check_grid(grid: tuple[int, int], layers: Sequence[Layer]) -> None:
    if all(x.query_patches is None and x.key_patches is None for x in layers):
        sizes = sorted({n for x in layers for n in (x.sight.t, x.sight.s)})
        raise ValueError(
            f"grid says how an image is cut into as many patches as a layer has queries or keys, "
            f"{' or '.join(map(str, sizes))} (a class token and the like aside), got {grid[0]} x {grid[1]} = "
            f"{grid[0] * grid[1]}"
        )
