"""The difference of two sights: what a head looks at more, or less, after training, ablation, another prompt.

change = after - before
show.sight_map(change, head=3)
after.mass(groups) - before.mass(groups)        # of other questions, the answers are subtracted
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from sightline.shapes import Float, Int

if TYPE_CHECKING:
    from sightline.look.sight import Sight, Size, Span

__all__ = ["SightDifference"]

_NUMBERS = ("lse", "entropy", "peak", "received", "map")


@dataclass(frozen=True, eq=False, repr=False)
class SightDifference:
    """One sight less another: what both have measured, the map and rows, each as a difference.

    Attributes:
        minuend, subtrahend: The two sights, of as many items, heads, queries and keys.

    Example:
        >>> x = torch.randn(1, 2, 5, 8)
        >>> change = sl.look(x, x, x, sl.masks.causal()) - sl.look(x, x, x)
        >>> change.entropy.shape, bool((change.rows([0])[..., 1:] <= 0).all())     # it may look at fewer keys
        (torch.Size([1, 2, 5]), True)
    """

    minuend: "Sight"
    subtrahend: "Sight"

    def __post_init__(self) -> None:
        a, b = self.minuend, self.subtrahend
        shapes = [(*x.shape, x.t, x.s) for x in (a, b)]
        if shapes[0] != shapes[1] or a.averaged != b.averaged:
            raise ValueError(
                "only sights of as many items, heads, queries and keys can be subtracted, got "
                f"{shapes[0]} and {shapes[1]}"
            )

    @property
    def t(self) -> int:
        """How many queries."""
        return self.minuend.t

    @property
    def s(self) -> int:
        """How many keys."""
        return self.minuend.s

    @property
    def lead(self) -> tuple[int, ...]:
        """The dimensions before them."""
        return self.minuend.lead

    @property
    def shape(self) -> tuple[int, ...]:
        """The same, without the heads once averaged."""
        return self.minuend.shape

    @property
    def n_batch(self) -> int:
        """How many of the dimensions are of the batch."""
        return self.minuend.n_batch

    @property
    def has_heads(self) -> bool:
        """Whether there are single heads."""
        return self.minuend.has_heads

    @property
    def averaged(self) -> bool:
        """Whether the heads have been averaged."""
        return self.minuend.averaged

    @property
    def name(self) -> str:
        """Which module's, or of which two."""
        a, b = self.minuend.name, self.subtrahend.name
        return a if a == b else f"{a or 'a sight'} - {b or 'a sight'}"

    @property
    def statistics(self) -> dict[str, Tensor]:
        """Differences of what both have measured."""
        both = (self.minuend.statistics, self.subtrahend.statistics)
        names = [
            n for n in _NUMBERS if n in both[0] and n in both[1] and both[0][n].shape == both[1][n].shape
        ]
        return {n: both[0][n] - both[1][n] for n in names}

    @property
    def entropy(self) -> Float[Tensor, "... T"]:
        """How much more spread out each query's weights are, in nats."""
        return self.minuend.entropy - self.subtrahend.entropy

    @property
    def peak(self) -> Float[Tensor, "... T"]:
        """How much larger each query's largest weight is."""
        return self.minuend.peak - self.subtrahend.peak

    @property
    def received(self) -> Float[Tensor, "... S"]:
        """How much more weight each key received."""
        return self.minuend.received - self.subtrahend.received

    def map(
        self, size: "Size", *, queries: "Span | None" = None, keys: "Span | None" = None
    ) -> Float[Tensor, "... rows columns"]:
        """See :meth:`Sight.map`."""
        a, b = (x.map(size, queries=queries, keys=keys) for x in (self.minuend, self.subtrahend))
        return a - b

    def rows(self, index: int | Sequence[int] | Int[Tensor, "..."]) -> Float[Tensor, "... n S"]:
        """See :meth:`Sight.rows`."""
        index = list(index) if isinstance(index, Iterator) else index  # both are asked
        return self.minuend.rows(index) - self.subtrahend.rows(index)

    def mean_heads(self) -> "SightDifference":
        """The mean over the heads."""
        return SightDifference(self.minuend.mean_heads(), self.subtrahend.mean_heads())

    def __getitem__(self, index: int | slice | tuple[int | slice, ...]) -> "SightDifference":
        """Some items and heads, as of a sight."""
        return SightDifference(self.minuend[index], self.subtrahend[index])

    def __getattr__(self, name: str) -> Any:
        """Say what to do where the sights have a question that their difference has not."""
        if not name.startswith("_") and hasattr(type(self.minuend), name):
            raise AttributeError(
                f"a difference has what both sights measured, map and rows; subtract the answers: "
                f"a.{name}(...) - b.{name}(...)"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        """The two sights."""
        return f"{self.minuend!r}\nless\n{self.subtrahend!r}"
