"""Two of a kind, side by side: every question about the first can be asked about the second.

Layers and heads belong together by their numbers. They may be of different sizes, as two texts are; the
difference is defined where both have as many heads, queries and keys.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sightline.show.explorer.arrays import pack, unpack
from sightline.show.explorer.layers import Layer
from sightline.show.explorer.requests import Request

__all__ = ["Pair"]

_ARRAYS = ("map", "row", "column", "rows", "entropy", "received")


class Pair:
    """The layers that are shown, and those that they are compared with, if any."""

    def __init__(
        self, layers: Sequence[Layer], others: Sequence[Layer] | None, names: tuple[str, str]
    ) -> None:
        self._layers, self._others, self._names = layers, others, names

    def answer(
        self, question: Callable[[Request], dict[str, Any]], fields: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Ask one of the two, or both and give the second less the first."""
        of = fields.get("of", 0)
        known = (0,) if self._others is None else (0, 1, "difference")
        if isinstance(of, bool) or of not in known:
            raise ValueError(f"of must be one of {', '.join(map(repr, known))}, got {of!r}")
        first = Request(layers=self._layers, fields=fields)
        if self._others is None or of == 0:
            return question(first)
        second = Request(layers=self._others, fields=fields)
        if of == 1:
            return question(second)
        self._check_alike(first)
        return _difference(question(first), question(second))

    def _check_alike(self, request: Request) -> None:
        assert self._others is not None  # noqa: S101 - asked for two
        i, names = request.layer_index, self._names
        if i >= len(self._others):
            raise ValueError(
                f"the difference of layer {i} needs it in both, got {len(self._layers)} layers for "
                f"{names[0]!r} and {len(self._others)} for {names[1]!r}"
            )
        a, b = ((x.n_heads, x.sight.t, x.sight.s) for x in (self._layers[i], self._others[i]))
        if a != b:
            raise ValueError(
                f"the difference needs as many heads, queries and keys in both, got {a} for {names[0]!r} and "
                f"{b} for {names[1]!r}; ask for one of them with of"
            )


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    found = dict(after)
    for name in _ARRAYS:
        if isinstance(before.get(name), dict) and isinstance(after.get(name), dict):
            change = unpack(after[name]) - unpack(before[name])
            found[name] = pack(change)
            found["largest"] = float(np.abs(change).max()) if change.size else 0.0
    return found
