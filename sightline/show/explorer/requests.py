"""What a request may say, checked: one sentence for what is wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sightline.look.groups import is_integer
from sightline.look.sight import Sight
from sightline.show.explorer.layers import Layer

__all__ = ["Request"]

_MOST_CELLS = 1 << 20  # of one answer
_MOST_NAMED = 1 << 14  # single weights of one row


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """A request, with the layers that it is about."""

    layers: Sequence[Layer]
    fields: Mapping[str, Any]

    @property
    def layer_index(self) -> int:
        """The layer asked for; the first by default."""
        return self.whole("sight", 0, len(self.layers))

    @property
    def layer(self) -> Layer:
        """The layer asked for."""
        return self.layers[self.layer_index]

    @property
    def sight(self) -> Sight:
        """The head asked for, or the mean of the heads, which is the default: without leading dimensions."""
        sight, head = self.layer.sight, self.fields.get("head", "mean")
        if head == "mean" or head is None:
            if not sight.has_heads:
                return sight
            return sight[0] if self.layer.n_heads == 1 else sight.mean_heads()
        h = self.whole("head", 0, self.layer.n_heads)
        return sight[h] if sight.has_heads else sight

    def whole(self, name: str, default: int | None, n: int) -> int:
        """A whole number in 0..n-1."""
        value = self.fields.get(name, default)
        if not is_integer(value) or not 0 <= value < n:
            what = ' or "mean"' if name == "head" else ""
            raise ValueError(f"{name} must be a whole number in 0..{n - 1}{what}, got {value!r}")
        return int(value)

    def count(self, name: str, default: int, most: int) -> int:
        """How many of something, at least one; fewer where there are fewer."""
        value = self.fields.get(name, default)
        if not is_integer(value) or value < 1:
            raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")
        return min(int(value), most)

    def span(self, name: str) -> tuple[int, int]:
        """A window of the queries or the keys; all of them by default."""
        value = self.fields.get(name)
        span = tuple(value) if isinstance(value, list) else value
        first, last = self.layer.sight.check_span(name, span)
        return int(first), int(last)

    def size(self) -> tuple[int, int]:
        """Rows and columns of a map: no more than the window has queries and keys."""
        value = self.fields.get("size", [64, 64])
        pair = [value, value] if is_integer(value) else value
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(map(is_integer, pair)):
            raise ValueError(f"size must be a whole number or [rows, columns], got {value!r}")
        (a, b), (c, d) = self.span("queries"), self.span("keys")
        rows, columns = min(int(pair[0]), b - a), min(int(pair[1]), d - c)
        if rows < 1 or columns < 1 or rows * columns > _MOST_CELLS:
            raise ValueError(f"a map has 1 to {_MOST_CELLS} cells, got a size of {value!r}")
        return rows, columns

    def width(self, name: str) -> int:
        """How many cells along one side of a window: all of them, if there are not too many."""
        first, last = self.span(name)
        if self.fields.get("size") is None:
            if last - first > _MOST_NAMED:
                raise ValueError(
                    f"up to {_MOST_NAMED} single weights come at once, got {last - first} {name}; "
                    "ask for a window of them, or for means with size"
                )
            return last - first
        return self.count("size", 0, min(last - first, _MOST_CELLS))
