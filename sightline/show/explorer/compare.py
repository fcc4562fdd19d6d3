"""Two of a kind, side by side: every question about the first can be asked about the second."""

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
        if others is not None and len(others) != len(layers):
            raise ValueError(
                f"two that are compared must have as many layers, got {len(layers)} for {names[0]!r} and "
                f"{len(others)} for {names[1]!r}"
            )
        for a, b in zip(layers, others or layers, strict=True):
            sizes = [(x.n_heads, x.sight.t, x.sight.s) for x in (a, b)]
            if sizes[0] != sizes[1]:
                raise ValueError(
                    "layers that are compared must have as many heads, queries and keys, got "
                    f"{sizes[0]} for {a.name!r} of {names[0]!r} and {sizes[1]} of {names[1]!r}"
                )

    def meta(self) -> dict[str, Any] | None:
        """The names of the two; None where there is only one."""
        return None if self._others is None else {"names": list(self._names)}

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
        return question(second) if of == 1 else _difference(question(first), question(second))


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    found = dict(after)
    for name in _ARRAYS:
        if isinstance(before.get(name), dict) and isinstance(after.get(name), dict):
            change = unpack(after[name]) - unpack(before[name])
            found[name] = pack(change)
            found["largest"] = float(np.abs(change).max()) if change.size else 0.0
    return found
