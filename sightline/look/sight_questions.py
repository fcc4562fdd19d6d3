"""The questions that a sight answers: from what was measured, or later from the kept q and k."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor

from sightline.look.groups import Groups, KeyGroups, Keys, is_integer
from sightline.look.measure import measure
from sightline.look.received_from import Reduce
from sightline.look.request import Size, Span, check_top, make_cells
from sightline.look.sight_data import SavedInputs, SightData, nan_where
from sightline.look.stream import Cells, StatsRequest, pool
from sightline.messages import check_choice, check_integer, format_value
from sightline.shapes import Float, Int, check_values, is_tensor

if TYPE_CHECKING:
    from sightline.look.relevance import Relevance

__all__ = ["SightQuestions", "pad_last"]


class SightQuestions(SightData):
    """Maps, rows, tops, masses and what the backward pass tells."""

    def map(
        self, size: Size, *, queries: Span | None = None, keys: Span | None = None
    ) -> Float[Tensor, "... rows columns"]:
        """The T x S picture at any size: the mean weight in each cell, exact.

        Args:
            size: How many cells down and across, a number or (rows, columns).
            queries: Only these queries, ``(first, past_the_last)``.
            keys: Only these keys.
        """
        cells = make_cells(size, self.t, self.s, queries, keys)
        measured = self.statistics.get("map") if queries is None and keys is None else None
        if measured is not None and tuple(measured.shape[-2:]) == (cells.rows, cells.columns):
            return measured
        whole = queries is None and keys is None
        kept = self.require_kept(
            f"a map of {cells.rows} x {cells.columns}", f"measure=sl.Look(map={size})" if whole else None
        )
        return self._pool(kept, cells)

    def rows(self, index: int | Sequence[int] | Int[Tensor, "..."]) -> Float[Tensor, "... n S"]:
        """Exact rows of the matrix of weights, for the queries asked."""
        if isinstance(index, Tensor):
            is_tensor(index, "rows")
            check_values(index, "rows")
        asked: Any = index.tolist() if isinstance(index, Tensor) else index
        chosen = list(asked) if isinstance(asked, Iterable) and not isinstance(asked, str) else [asked]
        strange = [i for i in chosen if not is_integer(i)]
        if strange:
            raise TypeError(f"the index of rows must be whole numbers, got {format_value(strange[0])}")
        wrong = [i for i in chosen if not -self.t <= i < self.t]
        if wrong:
            raise ValueError(f"rows must be queries in 0..{self.t - 1}, got {wrong[0]}; T is {self.t} here")
        kept = self.require_kept("rows")
        rows = [self._pool(kept, Cells(1, self.s, (i % self.t, i % self.t + 1), (0, self.s))) for i in chosen]
        if not rows:
            return kept[0].lse.new_zeros(*self.shape, 0, self.s)
        return nan_where(self.is_padding[..., chosen], torch.cat(rows, dim=-2))

    def top(self, k: int) -> tuple[Float[Tensor, "... T k"], Int[Tensor, "... T k"]]:
        """Each query's k largest weights and their keys, largest first; key -1 where it had fewer."""
        check_top(k, self.s)
        measured = self.statistics.get("top")
        if measured is not None and measured.size(-1) >= k:
            return measured[..., :k], self.statistics["top_at"][..., :k]
        if self.averaged:
            raise ValueError("the largest weights belong to single heads; ask the sight before mean_heads()")
        kept = self.require_kept(f"the top {k}", f"measure=sl.Look(top={k})")
        values, indices = [], []
        for inputs, lse, first_key, _ in kept:
            stats = measure(inputs, StatsRequest(top=min(k, inputs.shape[3])), lse)
            assert stats.top is not None  # noqa: S101
            assert stats.top_at is not None  # noqa: S101
            at = torch.where(stats.top_at >= 0, stats.top_at + first_key, stats.top_at)
            values.append(pad_last(stats.top, k, 0.0))
            indices.append(pad_last(at, k, -1.0))
        return self.restore_queries(torch.cat(values, dim=2)), self.restore_lead(torch.cat(indices, dim=2))

    @property
    def logit(self) -> Float[Tensor, "... T"]:
        """Each query's largest score before the softmax; -inf for a query that may look at nothing."""
        lse, peak = self.lse, self.peak
        return peak.masked_fill(lse == -torch.inf, 1.0).log() + lse

    def mass(self, groups: Groups | KeyGroups) -> Float[Tensor, "... T G"]:
        """The weight each query gives to each group of keys; differentiable.

        Args:
            groups: The group of each key, ids ``(S,)`` or ``(B, S)``, -1 for none; or a list, or a dict with
                names, of groups: each a slice, a range or a list of keys, or the name of tokens, such as
                ``"image"``. Groups may overlap and leave keys out;
                :func:`sightline.look.groups.read_groups` says which.

        Example:
            >>> x = torch.zeros(1, 1, 4, 8)                         # each looks at all alike
            >>> sl.look(x, x, x).mass([slice(0, 3), [3]])[0, 0, 0]
            tensor([0.7500, 0.2500])
        """
        from sightline.look.mass import mass  # noqa: PLC0415

        return mass(self, groups)

    def columns(self, index: Keys) -> Float[Tensor, "... T n"]:
        """Exact columns of the matrix of weights, for the keys asked; differentiable."""
        from sightline.look.mass import columns  # noqa: PLC0415

        return columns(self, index)

    def received_from(
        self, queries: Span | None = None, reduce: Reduce = "sum", *, n_kv_heads: int | None = None
    ) -> Float[Tensor, "... S"]:
        """The weight each key received from some of the queries; differentiable.

        Args:
            queries: Only these queries, ``(first, past_the_last)``. Default: all.
            reduce: ``"sum"``, ``"mean"`` over the window, or ``"max"``, the largest weight a query gave.
            n_kv_heads: Reduce over the query heads that share a key head too: how many key heads there are.
                One number per entry of a grouped cache, ``(B, n_kv_heads, S)``.
        """
        from sightline.look.received_from import received_from  # noqa: PLC0415

        check_choice("reduce", reduce, get_args(Reduce))
        if n_kv_heads is not None:
            check_integer("n_kv_heads", n_kv_heads, at_least=1)
        return received_from(self, queries, reduce, n_kv_heads)

    def offsets(self, n: int, *, first: int | None = None) -> Float[Tensor, "... n"]:
        """The weight at each distance t - s = 0 ... n-1, summed over the queries; differentiable.

        Args:
            n: How many distances.
            first: Where the first query stands among the keys, if not where the first key does.

        Example:
            >>> x = torch.zeros(1, 1, 3, 8)
            >>> sl.look(x, x, x, sl.masks.causal()).offsets(3)      # 1 + 1/2 + 1/3, 1/2 + 1/3, 1/3
            tensor([[[1.8333, 0.8333, 0.3333]]])
        """
        from sightline.look.offsets import offsets  # noqa: PLC0415

        return offsets(self, n, first)

    @property
    def importance(self) -> Float[Tensor, "..."]:
        """How much a loss depends on each head, |Σ output · gradient|, (..., H); after ``backward``.

        It needs ``sl.watch(model, grad=True)``. Removing a head changes the loss by about as much.
        """
        from sightline.look.relevance import importance  # noqa: PLC0415

        return importance(self)

    @property
    def relevance(self) -> "Relevance":
        """Sums over keys and over queries of weight x gradient where it is positive; after ``backward``.

        ``relevance.keys`` is (..., S), ``relevance.queries`` (..., T). It needs ``watch(model, grad=True)``.
        """
        from sightline.look.relevance import relevance  # noqa: PLC0415

        return relevance(self)

    def _pool(self, kept: tuple[SavedInputs, ...], cells: Cells) -> Tensor:
        total, first = None, 0
        for inputs, lse, first_key, _ in kept:
            part = pool(inputs, lse, cells, first, first_key)
            total = part if total is None else total + part
            first += inputs.shape[2]
        assert total is not None  # noqa: S101
        return self.restore_lead(total.div_(cells.areas(total.device)))


def pad_last(x: Tensor, width: int, value: float) -> Tensor:
    """Widen the last dimension to ``width``."""
    return torch.nn.functional.pad(x, (0, width - x.size(-1)), value=value)
