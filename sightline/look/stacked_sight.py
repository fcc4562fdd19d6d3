"""What was seen of calls that were measured together (``waiting.py``), until one of them is asked for."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sightline.look.sight import Sight

__all__ = ["StackedSight"]


@dataclass(frozen=True, eq=False, kw_only=True)
class StackedSight:
    """What was seen of calls that were measured as one; it holds on to nothing else of them.

    Attributes:
        sight: Of all of them, stacked along the batch.
        names: Their modules.
        orders: Their numbers.
    """

    sight: Sight
    names: tuple[str, ...]
    orders: tuple[int, ...]

    def split(self) -> Iterator[tuple[int, str, Sight]]:
        """The number, the module and the sight of each call."""
        sight, n = self.sight, self.sight.lead[0] // len(self.names)
        parts = {name: x.split(n) for name, x in sight.statistics.items()}
        for i, (order, name) in enumerate(zip(self.orders, self.names, strict=True)):
            statistics = {key: pieces[i] for key, pieces in parts.items()}
            yield order, name, replace(sight, lead=(n, *sight.lead[1:]), statistics=statistics, name=name)
