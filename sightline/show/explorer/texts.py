"""The texts that queries and keys are of: each once, a window of it at a time where it is long."""

from collections.abc import Mapping, Sequence
from typing import Any

from sightline.look.groups import is_integer
from sightline.show.explorer.layers import Layer

__all__ = ["Texts"]

_WINDOW = 4096  # tokens of a window
_HITS = 200
_LONGEST = 10_000  # letters of a token


class Texts:
    """The tokens of all layers."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._texts: list[tuple[str, ...]] = []
        self._of: dict[int, tuple[int | None, int | None]] = {}
        for layer in layers:
            self._of[id(layer)] = (self._number(layer.queries), self._number(layer.keys))

    def of(self, layer: Layer) -> tuple[int | None, int | None]:
        """Which texts the queries and the keys of a layer are of."""
        return self._of[id(layer)]

    def meta(self, most: int) -> list[dict[str, Any]]:
        """How long each text is, and its tokens where there are not more than ``most``."""
        return [{"n": len(text), "words": _cut(text) if len(text) <= most else None} for text in self._texts]

    def window(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The tokens of a span."""
        text = self._text(request)
        span = request.get("span", [0, min(len(text), _WINDOW)])
        if not isinstance(span, list | tuple) or len(span) != 2 or not all(map(is_integer, span)):
            raise ValueError(f"span must be [first, past_the_last], got {span!r}")
        first, last = span
        if not 0 <= first < last <= len(text) or last - first > _WINDOW:
            raise ValueError(
                f"span must be up to {_WINDOW} tokens within 0..{len(text)}, got {[first, last]}"
            )
        return {"words": _cut(text[first:last]), "span": [first, last]}

    def find(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Where some letters stand, upper and lower case alike: the first tokens that contain them."""
        text, letters = self._text(request), request.get("letters")
        if not isinstance(letters, str) or not letters:
            raise ValueError(f"letters must be a text of at least one letter, got {letters!r}")
        wanted = letters.casefold()
        hits = [i for i, token in enumerate(text) if wanted in token.casefold()]
        return {"at": hits[:_HITS], "n": len(hits)}

    def _text(self, request: Mapping[str, Any]) -> tuple[str, ...]:
        number = request.get("text", 0)
        if not is_integer(number) or not 0 <= number < len(self._texts):
            raise ValueError(f"text must be a whole number in 0..{len(self._texts) - 1}, got {number!r}")
        return self._texts[number]

    def _number(self, tokens: tuple[str, ...] | None) -> int | None:
        if tokens is None:
            return None
        if tokens not in self._texts:
            self._texts.append(tokens)
        return self._texts.index(tokens)


def _cut(tokens: Sequence[str]) -> list[str]:
    return [token if len(token) <= _LONGEST else f"{token[: _LONGEST - 1]}…" for token in tokens]
