"""A sight of this rank's part of the queries; what it does not have is asked of all ranks, by a ring pass."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn, cast

import torch
from torch import Tensor

from sightline.look.groups import Groups, KeyGroups, Keys, is_integer, key_index, read_groups
from sightline.look.inputs import Tile
from sightline.look.received_from import Reduce
from sightline.look.request import Size, Span, check_top, make_cells
from sightline.look.sharded.blocks import Block
from sightline.look.sharded.collectives import add_up
from sightline.look.sharded.ring import Ring
from sightline.look.sharded.ring_pass import (
    Lse,
    measure_round,
    over_block,
    reduce_partials,
    scatter_sums,
)
from sightline.look.sight import Sight
from sightline.look.tile_stats import StatsRequest
from sightline.shapes import Float, Int

if TYPE_CHECKING:
    from sightline.look.relevance import Relevance

__all__ = ["ShardedSight"]


class ShardedSight(Sight):
    """What this rank has seen of an attention whose sequence is spread over several.

    ``t`` and ``s`` are those of the whole sequence. ``lse``, ``entropy``, ``peak``, ``peak_at``, ``top`` and
    ``output`` have one entry per query of this rank, ``received`` one per key of this rank, in the order of
    ``shard.queries`` and ``shard.keys``; keys are counted in the whole. Later questions are collective: every
    rank asks the same, in the same order. :meth:`gather` gives each rank the whole.
    """

    @property
    def ring(self) -> Ring:
        """The ranks that have the rest."""
        shard = self.shard
        if shard is None or shard.keys is None or shard.queries is None or shard.keys.group is None:
            raise ValueError(
                "a sight of a part of the sequence that was copied or sent has lost its process group; ask "
                "it before, or send what sight.gather() gives"
            )
        group = shard.keys.group
        return Ring(shard.queries, shard.keys, group, torch.distributed.get_rank(group))

    def map(
        self, size: Size, *, queries: Span | None = None, keys: Span | None = None
    ) -> Float[Tensor, "... rows columns"]:
        """The picture of the whole T x S, on every rank; see :meth:`sightline.Sight.map`. Collective."""
        cells = make_cells(size, self.t, self.s, queries, keys)
        measured = self.statistics.get("map") if queries is None and keys is None else None
        if measured is not None and tuple(measured.shape[-2:]) == (cells.rows, cells.columns):
            return measured
        return self._measured(StatsRequest(cells=cells))["map"]

    def rows(self, index: int | Sequence[int] | Int[Tensor, "..."]) -> Float[Tensor, "... n S"]:
        """Exact rows of the whole matrix, for queries of any rank, on every rank. Collective."""
        asked = index.tolist() if isinstance(index, Tensor) else index
        chosen = list(asked) if isinstance(asked, Iterable) else [asked]
        wrong = [i for i in chosen if not is_integer(i) or not -self.t <= i < self.t]
        if wrong:
            raise ValueError(
                f"rows must be queries in 0..{self.t - 1}, got {wrong[0]!r}; T is {self.t} on all ranks "
                "together"
            )
        return self._sum_rows([i % self.t for i in chosen])

    def top(self, k: int) -> tuple[Float[Tensor, "... T k"], Int[Tensor, "... T k"]]:
        """The k largest weights of this rank's queries, and their keys in the whole. Collective."""
        check_top(k, self.s)
        measured = self.statistics.get("top")
        if measured is not None and measured.size(-1) >= k:
            return measured[..., :k], self.statistics["top_at"][..., :k]
        if self.averaged:
            raise ValueError("the largest weights belong to single heads; ask the sight before mean_heads()")
        found = self._measured(StatsRequest(top=k))
        return found["top"], found["top_at"]

    def mass(self, groups: Groups | KeyGroups) -> Float[Tensor, "... T G"]:
        """The weight that each of this rank's queries gives to groups of the whole's keys. Collective."""
        read = read_groups(groups, self.s, self.kept_lse("mass").device, self.tokens)
        return self._sum_members(read.members)

    def columns(self, index: Keys) -> Float[Tensor, "... T n"]:
        """Columns of the whole matrix, for this rank's queries. Collective."""
        chosen = key_index(index, self.s, "columns")
        members = torch.zeros(self.s, len(chosen), dtype=torch.bool, device=self.kept_lse("columns").device)
        members[chosen, list(range(len(chosen)))] = True
        return self._sum_members(members)

    def received_from(
        self, queries: Span | None = None, reduce: Reduce = "sum", *, n_kv_heads: int | None = None
    ) -> Float[Tensor, "... S"]:
        """The weight that this rank's keys received from some queries of the whole. Collective."""
        if n_kv_heads is not None or self.averaged or reduce not in ("sum", "mean", "max"):
            raise ValueError(
                "of a part of the sequence received_from has no n_kv_heads and no averaged heads, and reduce "
                f"is 'sum', 'mean' or 'max', got {reduce!r}; reduce the heads of what it gives"
            )
        first, last = self.check_span("queries", queries)
        lse = self.kept_lse("what keys received")
        partial = lse.new_zeros(*lse.shape[:2], self.s, dtype=self.kept[0].inputs.dtype)

        def put(block: Block, tile: Tile, weights: Tensor) -> None:
            keys = (tile.batch, tile.heads, slice(*(x + block.first_key for x in tile.columns)))
            if reduce == "max":
                partial[keys] = torch.maximum(partial[keys], weights.amax(-2))
            else:
                partial[keys] += weights.sum(-2)

        self._ask(put, [(first, last)])
        ring = self.ring
        (own,) = scatter_sums([(partial, ring.keys.parts)], ring, largest=reduce == "max")
        return self.restore_lead(own / (last - first) if reduce == "mean" else own)

    def offsets(self, n: int, *, first: int | None = None) -> Float[Tensor, "... n"]:
        """The weight at each distance in the whole, on every rank. Collective."""
        if not is_integer(n) or not 1 <= n <= self.s:
            raise ValueError(f"n must be a whole number of distances, 1 to S={self.s}, got {n!r}")
        if first is None and self.t != self.s:
            raise ValueError(
                f"T={self.t} queries and S={self.s} keys are not the same tokens, so nothing says how far "
                "they are apart; if they are of one sequence, say where the first query stands with first="
            )
        lse = self.kept_lse("offsets")
        sums = lse.new_zeros(*lse.shape[:2], n, dtype=self.kept[0].inputs.dtype)

        def put(block: Block, tile: Tile, weights: Tensor) -> None:
            queries = torch.arange(*tile.rows, device=lse.device) + block.first_query + (first or 0)
            keys = torch.arange(*tile.columns, device=lse.device) + block.first_key
            distances = queries[:, None] - keys
            near = (distances >= 0) & (distances < n)
            sums[tile.batch, tile.heads] = sums[tile.batch, tile.heads].index_add(
                -1, distances[near], weights[..., near]
            )

        self._ask(put)
        return self.restore_lead(add_up([sums], self.ring.group)[0])

    @property
    def relevance(self) -> "Relevance":
        """Not of a part."""
        self._refuse("relevance")

    @property
    def importance(self) -> Float[Tensor, "..."]:
        """Not of a part."""
        self._refuse("importance")

    def _refuse(self, what: str) -> NoReturn:
        raise ValueError(
            f"{what} is not measured where the sequence is spread over processes; this is a sight of "
            f"{self.shard}"
        )

    def kept_lse(self, what: str) -> Float[Tensor, "B H T"]:
        """The lse of this rank's queries, or a sentence that says why a question can't be answered."""
        return self.require_kept(what)[0].lse

    def _ask(self, put: Callable[[Block, Tile, Tensor], None], spans: Sequence[Span] | None = None) -> None:
        """Show the weights of every tile of every block.

        Args:
            put: Takes the block, the tile and its weights.
            spans: Only those of these queries of the whole. Default: all.
        """
        ((inputs, lse, *_),) = self.require_kept("a question")
        split = Lse(lse.double(), inputs.dtype)
        for block, _ in self.ring.blocks(inputs):
            for first, last in spans or [(0, self.t)]:
                queries = (
                    max(first - block.first_query, 0),
                    min(last - block.first_query, block.inputs.shape[2]),
                )
                if queries[0] < queries[1]:
                    for tile, weights in over_block(block, _weights_of(block, split), queries=queries):
                        put(block, tile, weights)

    def _sum_rows(self, chosen: list[int]) -> Float[Tensor, "... n S"]:
        lse = self.kept_lse("rows")
        rows = lse.new_zeros(*lse.shape[:2], len(chosen), self.s, dtype=self.kept[0].inputs.dtype)

        def put(block: Block, tile: Tile, weights: Tensor) -> None:
            keys = slice(*(x + block.first_key for x in tile.columns))
            for place, query in enumerate(chosen):
                if query == block.first_query + tile.rows[0]:
                    rows[tile.batch, tile.heads, place, keys] = weights[:, :, 0]

        if chosen:
            self._ask(put, [(i, i + 1) for i in dict.fromkeys(chosen)])
            (rows,) = add_up([rows], self.ring.group)
        return self.restore_lead(rows)

    def _sum_members(self, members: Tensor) -> Float[Tensor, "... T G"]:
        lse = self.kept_lse("mass")
        dtype = self.kept[0].inputs.dtype
        members = (members if members.dim() == 2 else members[:, None]).to(dtype)
        sums = lse.new_zeros(*lse.shape, members.size(-1), dtype=dtype)

        def put(block: Block, tile: Tile, weights: Tensor) -> None:
            own = members if members.dim() == 2 or members.size(0) == 1 else members[tile.batch]
            keys = slice(*(x + block.first_key for x in tile.columns))
            rows = (tile.batch, tile.heads, slice(*(x + block.rows.start for x in tile.rows)))
            sums[rows] += weights @ own[..., keys, :]

        self._ask(put)
        return self.restore_lead(sums)

    def _measured(self, request: StatsRequest) -> dict[str, Tensor]:
        """Statistics that were not asked for when looking."""
        ((inputs, lse, *_),) = self.require_kept("that")
        (found,) = reduce_partials([measure_round(inputs, lse, request, self.ring)])
        return {name: self.restore_lead(x) for name, x in found.items()}

    def __getitem__(self, index: int | slice | tuple[int | slice, ...]) -> "ShardedSight":
        """Some items and heads, as of any sight; all ranks must choose the same."""
        return cast("ShardedSight", super().__getitem__(index))

    def __repr__(self) -> str:
        """What a person wants to know first."""
        of = f" of {self.name}" if self.name else ""
        lead = " x ".join(map(str, self.shape)) or "1"
        measured = ", ".join(self.statistics)
        return (
            f"Sight{of}: {lead} heads, T={self.t} queries, S={self.s} keys\n"
            f"  this rank has {self.shard}; gather() gives each rank all\n  measured  {measured}"
        )

    def _repr_png_(self) -> bytes | None:
        """No picture: drawing it would have to wait for the other ranks."""
        return None


def _weights_of(block: Block, lse: Lse) -> Callable[[Tile], Tensor]:
    def weights(tile: Tile) -> Tensor:
        return lse.logs(block, tile).exp_()

    return weights
