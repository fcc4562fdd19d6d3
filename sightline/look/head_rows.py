"""Heads in rows: one line per head, as text, JSON or a data frame."""

import html
import importlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Head", "HeadTable"]

_COLUMNS = ("layer", "head", "entropy", "distance", "first", "peak", "evenness", "kind")


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """One head of one layer, averaged over the batch and over the queries that may look at something.

    Attributes:
        layer: The module's name, with the call's number where it was called again.
        head: Which of its heads.
        entropy: How spread out its weights are, in nats.
        distance: How many tokens away it looks; None for cross-attention and where q and k are not kept.
        first: The share of its weight on the first key, the attention sink.
        peak: A query's largest weight.
        evenness: Its entropy as a share of that of a head that looks at all it may alike: 0 is sharp, 1 even.
            None where that can't be known: a mask, and q and k not kept.
        kind: What such a head is called, see :mod:`sightline.look.head_kinds`; "" where none fits.
        shares: How much of its weight each kind accounts for.
    """

    layer: str
    head: int
    entropy: float
    distance: float | None
    first: float
    peak: float
    evenness: float | None = None
    kind: str = ""
    shares: Mapping[str, float] = field(default_factory=dict)


class HeadTable(list[Head]):
    """A list of heads that prints as a table."""

    def to_json(self) -> str:
        """An array with an object per head."""
        return json.dumps([asdict(row) for row in self])

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with a row per head; the shares are columns of their own."""
        try:
            pandas: Any = importlib.import_module("pandas")  # an extra
        except ImportError as error:
            raise ImportError(
                "to_pandas needs pandas, which is not installed; `pip install pandas`, or use to_json()"
            ) from error
        return pandas.DataFrame([_flat(row) for row in self])

    def __str__(self) -> str:
        """A line per head, columns lined up."""
        cells = [_COLUMNS, *(tuple(_shown(getattr(row, name)) for name in _COLUMNS) for row in self)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(_COLUMNS))]
        left = {0, len(_COLUMNS) - 1}
        lines = (
            "  ".join(
                cell.ljust(width) if i in left else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        )
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks: a row per head."""
        head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
        rows = (
            "".join(f"<td>{html.escape(_shown(getattr(row, name)))}</td>" for name in _COLUMNS)
            for row in self
        )
        return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _flat(row: Head) -> dict[str, Any]:
    cells = asdict(row)
    shares: dict[str, float] = cells.pop("shares")
    return cells | {f"share of {kind}": share for kind, share in shares.items()}


def _shown(x: object) -> str:
    return "-" if x is None else f"{x:.3f}" if isinstance(x, float) else str(x)
