"""What to measure, and how large a map may be."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeGuard

from sightline.look.cells import Cells
from sightline.look.groups import is_integer
from sightline.messages import check_bool

__all__ = [
    "Look",
    "Size",
    "Span",
    "check_places",
    "check_span",
    "check_top",
    "is_integer_pair",
    "make_cells",
    "parse_map_size",
]

Size = int | tuple[int, int]
Span = tuple[int, int]


@dataclass(frozen=True)
class Look:
    """What to measure. Ask for less, pay for less: one pass over the weights finds all of it.

    Attributes:
        received: The weight each key received, summed over the queries.
        entropy: How spread out each query's weights are, in nats.
        peak: Each query's largest weight, and the key that got it.
        map: The size of a picture of the T x S weights, a number or (rows, columns).
        top: How many of each query's largest weights to keep.

    Example:
        >>> q = k = v = torch.randn(1, 2, 11, 8)
        >>> sl.look(q, k, v, measure=sl.Look(entropy=False, peak=False, map=3)).map(3).shape
        torch.Size([1, 2, 3, 3])
    """

    received: bool = True
    entropy: bool = True
    peak: bool = True
    map: Size | None = None
    top: int | None = None

    def __post_init__(self) -> None:
        for name in ("received", "entropy", "peak"):
            check_bool(name, getattr(self, name))
        if self.top is not None and (not is_integer(self.top) or self.top < 1):
            raise ValueError(f"top must be a whole number >= 1, got {self.top!r}; None keeps no weights")
        if self.map is not None and min(parse_map_size(self.map)) < 1:
            raise ValueError(f"a map must be at least 1 x 1, got {self.map}; None draws none")
        if self.map is not None and not is_integer(self.map):
            object.__setattr__(self, "map", parse_map_size(self.map))

    def clip(self, t: int, s: int) -> "Look":
        """As much of it as T queries and S keys have: a map that is too large, or a top, is cut to them."""
        if self.map is None and self.top is None:
            return self
        rows, columns = parse_map_size(self.map or 0)
        size = (min(rows, t), min(columns, s)) if rows and t and s else None
        return replace(self, map=size, top=min(self.top or 0, s) or None)


def make_cells(size: Size, t: int, s: int, queries: Span | None = None, keys: Span | None = None) -> Cells:
    """Lay a grid over T x S or a window of it, or say why it does not fit."""
    rows, columns = parse_map_size(size)
    (top, bottom), (left, right) = check_span("queries", queries, t), check_span("keys", keys, s)
    if not 1 <= rows <= bottom - top or not 1 <= columns <= right - left:
        raise ValueError(
            f"a map has at least one cell and no more than queries and keys, got {rows} x {columns} "
            f"cells for {bottom - top} queries and {right - left} keys; the largest is "
            f"{bottom - top, right - left}"
        )
    return Cells(rows, columns, (top, bottom), (left, right))


def check_span(name: str, span: Span | None, n: int) -> Span:
    """Return a range of queries or keys within the n that there are; all of them by default."""
    whole = (0, n) if span is None else span
    if not is_integer_pair(whole) or not 0 <= whole[0] < whole[1] <= n:
        raise ValueError(f"{name} must be a range (first, past_the_last) within 0..{n}, got {whole!r}")
    return whole


def check_places(index: Iterable[object], n: int, what: str, of: str) -> None:
    """Refuse places beyond the n that there are; negative ones count from the end."""
    for i in index:
        if not is_integer(i):
            raise TypeError(f"{what} must hold whole numbers, positions of {of}, got {i!r}")
        if not -n <= i < n:
            raise ValueError(f"{what} must hold {of} in 0..{n - 1}, got {i}; there are {n} {of} here")


def check_top(k: int, s: int) -> None:
    """Refuse to keep more weights than a query has."""
    if not is_integer(k) or not 1 <= k <= s:
        raise ValueError(
            f"top must be a whole number, at least 1 and at most the number of keys S={s}, got {k!r}"
        )


def parse_map_size(size: Size) -> tuple[int, int]:
    """Read the size of a map."""
    pair = (size, size) if is_integer(size) else size
    if not is_integer_pair(pair):
        raise ValueError(f"the size of a map is a whole number or (rows, columns), got {size!r}")
    return pair[0], pair[1]


def is_integer_pair(x: object) -> TypeGuard[tuple[int, int]]:
    """Whether it is two whole numbers."""
    return isinstance(x, tuple | list) and len(x) == 2 and all(map(is_integer, x))
