"""``Sight``: what an attention looked at, as statistics of weights that were never stored."""

import html
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import torch
from torch import Tensor

from sightline.look.calls import CallShape
from sightline.look.engine import run
from sightline.look.groups import Groups, KeyGroups, Keys, is_integer, key_index, read_groups
from sightline.look.measure import Lse, Measure
from sightline.look.measures_basic import Map, Rows, Top
from sightline.look.measures_more import (
    Applied,
    Columns,
    Mass,
    Offsets,
    ReceivedFrom,
    Reduce,
    Weighted,
    check_distances,
)
from sightline.look.notebook import NotebookRepr
from sightline.look.output_gradient import OutputGradient
from sightline.look.request import Look, Size, Span, check_span, check_top, make_cells
from sightline.look.sharded.axes import Shard
from sightline.look.source import Block, Local, OutAxis, Source
from sightline.messages import check_bool, check_choice, check_integer, format_value
from sightline.shapes import Bool, Float, Int, check_values, is_tensor

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd  # type: ignore[import-untyped,import-not-found,unused-ignore]

    from sightline.look.difference import SightDifference
    from sightline.look.relevance import Relevance

__all__ = ["Look", "Sight", "Size", "Span", "axes_of", "count_batch_dims"]

_OF_QUERIES = ("lse", "entropy", "peak")
_AVERAGED = ("output", "entropy", "peak", "received", "map")
_PICTURE = 96  # cells of the picture that a notebook shows, down and across, at most
_BY_QUERY = ("lse", "entropy", "peak", "peak_at", "top", "top_at", "output", "is_padding")
_AXES: dict[str, OutAxis] = {"received": "key", "map": "all", **dict.fromkeys(_BY_QUERY, "query")}


@dataclass(frozen=True, eq=False, repr=False)
class Sight(NotebookRepr):
    """What was seen of one attention: statistics of its weights, which were never stored.

    Statistics have the leading dimensions of q, usually ``(B, H)``. What was not measured raises a sentence
    that says how to ask. While q and k are kept, :meth:`ask` and its short forms answer any question later;
    :meth:`forget` lets them go. ``sight[0]`` is the first item of the batch, ``sight[0, 2:4]`` two of its
    heads, ``sight["entropy"]`` what was measured under that name.

    Attributes:
        t: How many queries looked.
        s: At how many keys.
        lead: The dimensions before them.
        statistics: What was measured, by name.
        kept: What later questions are answered from; several when steps were stacked.
        name: Which module's attention it is, when a model was watched.
        averaged: Whether the heads have been averaged.
        n_batch: How many of the dimensions in ``lead`` are of the batch; what follows are heads.
        source: How it was read: off a ``kernel``, off ``flex`` attention, or off the ``weights`` that the
            model had computed itself.
        padding: Who said which queries are padding: ``attention_mask`` or ``key_padding_mask`` that the
            model was called with, ``watch(attention_mask)``, ``lengths`` of a packed call, ...; empty where
            nobody did. ``unknown`` where it was said of a sequence of another length: all queries count.
        tokens: The tokens of each item of the batch, where ``watch(tokens=...)`` was given.
        backward: What the backward pass tells, where the model was watched with ``grad=True``.
        axes: What the statistics of measures of one's own have numbers for: queries, keys, neither.
        skipped: The calls of the same module since the sight before, which ``watch(every=...)`` left out.
        after: The call after this one, if it was left out.
        parents: Which item of the call before each item goes on from, where beam search moved them.
        is_followed: Whether stacked steps have been put together by that.
        is_masked: Whether some queries may not look at some keys.
        shard: Which items, heads, queries and keys of how many these are, where other processes have the
            rest; None where this is the whole.
    """

    t: int
    s: int
    lead: tuple[int, ...]
    statistics: dict[str, Tensor]
    kept: tuple[Block, ...] = ()
    name: str = ""
    averaged: bool = False
    n_batch: int = 1
    source: str = "kernel"
    padding: str = ""
    tokens: tuple[tuple[str, ...], ...] = ()
    backward: OutputGradient | None = None
    skipped: tuple[CallShape, ...] = ()
    after: CallShape | None = None
    parents: Int[Tensor, " B"] | None = None
    is_followed: bool = False
    is_masked: bool = False
    shard: Shard | None = None
    axes: dict[str, OutAxis] = field(default_factory=dict)

    @property
    def output(self) -> Float[Tensor, "... T Dv"]:
        """What the attention gave: the mixed values, bit for bit what it gives when nobody looks."""
        return self._statistic("output", "sl.look keeps it, sl.watch leaves it to the model")

    @property
    def lse(self) -> Float[Tensor, "... T"]:
        """The log-sum-exp of each query's scores; -inf for a query that may look at nothing."""
        return self._statistic("lse", "it belongs to single heads")

    @property
    def entropy(self) -> Float[Tensor, "... T"]:
        """How spread out each query's weights are, in nats: 0 on one key, log S on all alike."""
        return self._statistic("entropy", "ask for it with measure=sl.Look(entropy=True)")

    @property
    def peak(self) -> Float[Tensor, "... T"]:
        """Each query's largest weight."""
        return self._statistic("peak", "ask for it with measure=sl.Look(peak=True)")

    @property
    def peak_at(self) -> Int[Tensor, "... T"]:
        """The key that got it; -1 for a query that may look at nothing."""
        return self._statistic("peak_at", "ask single heads for it, with measure=sl.Look(peak=True)")

    @property
    def received(self) -> Float[Tensor, "... S"]:
        """The weight each key received, summed over the queries."""
        return self._statistic("received", "ask for it with measure=sl.Look(received=True)")

    @property
    def is_padding(self) -> Bool[Tensor, "... T"]:
        """Which queries are padding, as :attr:`padding` says: their statistics are NaN."""
        known = self.statistics.get("is_padding")
        if known is not None:
            return known
        like = next((x for name in _OF_QUERIES if (x := self.statistics.get(name)) is not None), None)
        device = next((x.device for x in self.statistics.values()), None)
        shape = (*self.shape, self.t) if like is None else like.shape  # a rank has some of the queries
        return torch.zeros((), dtype=torch.bool, device=device).expand(shape)

    @property
    def is_looking(self) -> Bool[Tensor, "... T"]:
        """Which queries look at anything: not those that may not, nor padding."""
        if "lse" in self.statistics:
            return self.lse > -torch.inf
        if "peak" in self.statistics:  # heads averaged
            return self.statistics["peak"] > 0
        return ~self.is_padding

    def axis_of(self, name: str) -> OutAxis:
        """Return what a statistic has a number for: each ``query``, each ``key``, or neither (``all``)."""
        return self.axes.get(name) or _AXES.get(name, "all")

    @property
    def has_heads(self) -> bool:
        """Whether there is a dimension of heads that is not averaged yet."""
        return len(self.lead) > self.n_batch and not self.averaged

    @property
    def heads(self) -> tuple[int, ...]:
        """The numbers that these heads have in the model, of which a tensor-parallel rank has some."""
        if self.shard is not None and self.shard.heads is not None:
            return tuple(self.shard.heads.positions().tolist())
        return tuple(range(self.lead[-1])) if self.has_heads else ()

    def ask(self, measure: Measure) -> Any:
        """Answer any measure from the kept q and k, in one pass over the weights.

        Args:
            measure: One of ``sl.measures``, or of your own.

        Returns:
            A tensor, or a tuple of them where the measure gives several. It carries gradients where the look
            did.

        Example:
            >>> x = torch.zeros(1, 1, 4, 8)                         # each looks at all alike
            >>> sl.look(x, x, x).ask(sl.measures.Coverage(0.7))
            tensor([[[3, 3, 3, 3]]])
        """
        if not isinstance(measure, Measure):
            raise TypeError(
                f"a sight is asked a measure, such as sl.measures.Top(3), got {format_value(measure)}"
            )
        return self.lse if type(measure) is Lse else self._ask(measure, type(measure).__name__)

    def _ask(
        self, measure: Measure, what: str, beforehand: str | None = None, *, history: bool = True
    ) -> Any:
        source = self._source(what, beforehand, history=history and measure.has_gradients)
        measure.check(self.t, self.s)
        measure = measure.fit(self.t, self.s)
        answers = run([measure], source)
        if "is_padding" in self.statistics:
            answers = measure.hide(answers, self._padding_of_all())
        restored = tuple(map(self.restore_lead, answers.values()))
        return restored[0] if len(restored) == 1 else restored

    def _source(self, what: str, beforehand: str | None = None, *, history: bool = True) -> Source:
        kept = self.require_kept(what, beforehand, history=history)
        if self.shard is None or self.shard.queries is None:
            return Local(*kept)
        from sightline.look.sharded.ring import ring_of  # noqa: PLC0415 (it is rare)

        return ring_of(self.shard).source(kept[0].inputs, kept[0].lse)

    def _padding_of_all(self) -> Bool[Tensor, "B H T"]:
        hidden = self.is_padding.unsqueeze(len(self.lead) - 1) if self.averaged else self.is_padding
        return hidden.expand(*self.lead, hidden.size(-1)).reshape(*self.kept[0].inputs.shape[:2], -1)

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
        whole = queries is None and keys is None
        measured = self.statistics.get("map") if whole else None
        if measured is not None and tuple(measured.shape[-2:]) == (cells.rows, cells.columns):
            return measured
        what = f"a map of {cells.rows} x {cells.columns}"
        beforehand = f"measure=sl.Look(map={size})" if whole else None
        found: Tensor = self._ask(Map(size, queries, keys), what, beforehand)
        return found

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
        found: Tensor = self._ask(Rows(chosen), "rows", history=False)
        return found

    def top(self, k: int) -> tuple[Float[Tensor, "... T k"], Int[Tensor, "... T k"]]:
        """Each query's k largest weights and their keys, largest first; key -1 where it had fewer."""
        check_top(k, self.s)
        measured = self.statistics.get("top")
        if measured is not None and measured.size(-1) >= k:
            return measured[..., :k], self.statistics["top_at"][..., :k]
        if self.averaged:
            raise ValueError("the largest weights belong to single heads; ask the sight before mean_heads()")
        values, at = self._ask(Top(k), f"the top {k}", f"measure=sl.Look(top={k})")
        return values, at

    @property
    def logit(self) -> Float[Tensor, "... T"]:
        """Each query's largest score before the softmax; -inf for a query that may look at nothing."""
        if "logit" in self.statistics:
            return self.statistics["logit"]
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
        kept = self.require_kept("mass")
        read = read_groups(groups, self.s, kept[0].inputs.q.device, self.tokens)
        n, b = read.n_items, kept[0].inputs.shape[0]
        if n not in (None, 1, b):
            raise ValueError(
                f"ids (B, S) must have a row for each of the B={b} items of the batch, got {n}; ids (S,) are "
                "the same for all"
            )
        found: Tensor = self._ask(Mass(read), "mass")
        return found

    def columns(self, index: Keys | Sequence[int]) -> Float[Tensor, "... T n"]:
        """Exact columns of the matrix of weights, for the keys asked; differentiable."""
        found: Tensor = self._ask(Columns(tuple(key_index(index, self.s, "columns"))), "columns")
        return found

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
        check_choice("reduce", reduce, get_args(Reduce))
        self.check_span("queries", queries)
        if n_kv_heads is not None:
            check_integer("n_kv_heads", n_kv_heads, at_least=1)
        if self.averaged and (reduce == "max" or n_kv_heads is not None):
            raise ValueError(
                "a maximum and groups of heads belong to single heads, got "
                f"reduce={reduce!r} of averaged heads; ask the sight before mean_heads()"
            )
        heads = self.lead[-1] if self.has_heads else 1
        if n_kv_heads is not None and heads % n_kv_heads:
            raise ValueError(
                f"n_kv_heads must divide the number of query heads, got {n_kv_heads} for {heads} heads; a "
                "model's config calls it num_key_value_heads"
            )
        found: Tensor = self._ask(
            ReceivedFrom(queries, reduce), "what keys received from a window of queries"
        )
        if n_kv_heads in (None, heads):
            return found
        grouped = found.unflatten(-2, (n_kv_heads, -1))  # query heads that share their keys follow each other
        return grouped.amax(-2) if reduce == "max" else getattr(grouped, reduce)(-2)

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
        check_distances(n, self.s)
        self.require_kept("offsets")
        self.check_position(first)
        found: Tensor = self._ask(Offsets(n, first), "offsets")
        return found

    def check_position(self, first: object) -> None:
        """Refuse a question about distances where nothing says how far queries and keys are apart."""
        if first is None and not self.is_aligned:
            raise ValueError(
                f"T={self.t} queries and S={self.s} keys are not the same tokens, so nothing says how far "
                "they are apart; if they are of one sequence, say where the first query stands with first="
            )
        if first is not None and not is_integer(first):
            raise TypeError(
                f"first must be a whole number, where the first query stands among the keys, got {first!r}; "
                "after 100 keys in a cache it is 100"
            )

    @property
    def is_aligned(self) -> bool:
        """Whether each query's own key is the one at its place, whether all at once or step by step."""
        if not self.kept or self.shard is not None:
            return self.t == self.s
        return all(x.position is not None or x.window.columns[1] == x.window.rows[1] for x in self.kept)

    def __matmul__(self, x: Float[Tensor, "... S C"]) -> Float[Tensor, "... T C"]:
        """Multiply the matrix of weights with columns, ``sight @ x``, without storing it; differentiable.

        ``sight.T @ y`` multiplies the transposed matrix with ``y`` (..., T, C).

        Example:
            >>> x = torch.zeros(1, 1, 4, 8)
            >>> (sl.look(x, x, x) @ torch.arange(4.0)[:, None])[0, 0, :, 0]
            tensor([1.5000, 1.5000, 1.5000, 1.5000])
        """
        found: Tensor = self._ask(Applied(self._factors(x, self.s, "S")), "a product with the weights")
        return found

    @property
    def T(self) -> "Transposed":  # noqa: N802 (as a tensor's)
        """The transposed matrix, for products: ``sight.T @ y``."""
        return Transposed(self)

    def _factors(self, x: Any, n: int, letter: str) -> Tensor:
        if not isinstance(x, Tensor) or x.dim() < 2 or x.size(-2) != n or not x.is_floating_point():
            shape = f"{tuple(x.shape)} of {x.dtype}" if isinstance(x, Tensor) else format_value(x)
            raise ValueError(
                f"the factor must be floating point (..., {letter}, C) with {letter}={n}, got {shape}"
            )
        if x.dim() == 2:
            return x
        try:
            x = x.expand(*self.lead, *x.shape[-2:])
        except RuntimeError:
            raise ValueError(
                f"the factor must have the leading dimensions {self.lead} or none, got {tuple(x.shape[:-2])}"
            ) from None
        return x.reshape(*self.kept[0].inputs.shape[:2], *x.shape[-2:]) if self.kept else x

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

    @property
    def kept_nbytes(self) -> int:
        """How much memory q and k take, if nobody else holds on to them."""
        return sum([x.inputs.nbytes + (0 if x.lse is None else x.lse.nbytes) for x in self.kept])

    @property
    def nbytes(self) -> int:
        """How much memory the statistics and what is kept take."""
        return sum([x.nbytes for x in self.statistics.values()]) + self.kept_nbytes

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions of the statistics before T or S: those of q, without the heads once averaged."""
        return self.lead[:-1] if self.averaged else self.lead

    def _statistic(self, name: str, remedy: str) -> Tensor:
        if name not in self.statistics:
            raise ValueError(f"this sight has no {name}; {remedy}")
        return self.statistics[name]

    def require_kept(
        self, what: str, beforehand: str | None = None, *, history: bool = True
    ) -> tuple[Block, ...]:
        """What a later question is answered from, or a sentence that says why it can't be.

        Args:
            what: The question.
            beforehand: How it could have been asked when looking.
            history: Whether the answer should carry gradients.
        """
        if not self.kept:
            remedy = "" if beforehand is None else f", or ask beforehand with {beforehand}"
            raise ValueError(
                f"{what} can't be had any more, q and k were not kept; keep them with keep=True{remedy}"
            )
        if any(piece.inputs.was_modified for piece in self.kept):
            remedy = "" if beforehand is None else f", or ask beforehand with {beforehand}"
            learns = any(piece.inputs.score is not None for piece in self.kept)
            written, clone = ("q, k or the score", "clones") if learns else ("q or k", "a clone")
            raise ValueError(
                f"{what} can't be had any more, {written} was written to since it was kept; "
                f"look at {clone}{remedy}"
            )
        kept = self.kept
        device = next((x.device for x in self.statistics.values()), kept[0].inputs.q.device)
        if kept[0].inputs.q.device != device:  # they wait in main memory
            kept = tuple(x.to(device) for x in kept)
        return kept if history else tuple(x.detached() for x in kept)

    def require_whole(self, what: str) -> None:
        """Refuse a question about a whole sequence to a sight of this rank's part of it."""
        if self.shard is not None and self.shard.queries is not None:
            raise ValueError(
                f"{what} needs the whole sequence, and this rank has {self.shard}; ask what gather() gives"
            )

    def check_span(self, name: str, span: Span | None) -> Span:
        """A range of queries or keys within those that there are; all of them by default."""
        return check_span(name, span, self.t if name == "queries" else self.s)

    def restore_lead(self, x: Tensor) -> Tensor:
        """(B, H, ...) in the leading dimensions that the caller knows, heads averaged where they are."""
        x = x.reshape(*self.lead, *x.shape[2:])
        return x.mean(len(self.lead) - 1) if self.averaged else x

    def mean_heads(self) -> "Sight":
        """The mean over the heads; what only single heads have, such as peak_at, is left out."""
        if self.averaged:
            return self
        if not self.has_heads:
            raise ValueError(f"this sight has no heads to average, its leading dimensions are {self.lead}")
        dim = len(self.lead) - 1
        means = {n: x.mean(dim) for n, x in self.statistics.items() if n in _AVERAGED}
        if "is_padding" in self.statistics:
            means["is_padding"] = self.statistics["is_padding"].select(dim, 0)
        return replace(self, statistics=means, averaged=True)

    def __getitem__(self, index: str | int | slice | tuple[int | slice, ...]) -> Any:
        """Some items of the batch and some heads, ``sight[0]``, ``sight[0, 2:4]``; or a statistic by name."""
        if isinstance(index, str):
            return self._statistic(index, f"it has {', '.join(self.statistics) or 'none'}")
        index = index if isinstance(index, tuple) else (index,)
        shape = self.shape
        if len(index) > len(shape):
            raise ValueError(f"this sight has leading dimensions {shape}, got {len(index)} indices, {index}")
        for i in index:
            if not isinstance(i, slice) and not is_integer(i):
                raise TypeError(f"a sight is indexed by whole numbers and slices, got {type(i).__name__}")
            _check_slice(i)
        index = tuple(i if isinstance(i, slice) else int(i) for i in index)
        for i, n in zip(index, shape, strict=False):
            if isinstance(i, int) and not -n <= i < n:
                raise ValueError(f"index {i} is out of range for leading dimensions {shape}")
        statistics = {name: x[index] for name, x in self.statistics.items()}
        n = self.n_batch
        batch = torch.arange(math.prod(self.lead[:n])).view(self.lead[:n])[index[:n]]
        heads = torch.arange(math.prod(self.lead[n:])).view(self.lead[n:])[index[n:]]
        b, h = batch.flatten().tolist(), heads.flatten().tolist()
        kept = tuple(x.select(b, h) for x in self.kept)
        lead = (*batch.shape, *heads.shape)
        tokens = tuple(self.tokens[i] for i in b) if len(self.tokens) > max(b, default=-1) else self.tokens
        backward = None if self.backward is None else self.backward.select(b, h)
        cut = replace(self, statistics=statistics, kept=kept, lead=lead, n_batch=batch.dim(), tokens=tokens)
        return replace(cut, backward=backward, shard=None if self.shard is None else self.shard.select(b, h))

    def gather(self, *, batch: Any = None) -> "Sight":
        """The whole of an attention that is spread over processes, on each of them. Collective.

        All ranks call it. What comes back has all heads, queries and keys, in order; q and k stay where they
        are, so it answers from its statistics alone.

        Args:
            batch: A data-parallel process group, to put the items of its ranks together too.
        """
        from sightline.look.sharded.gather import gather_sights  # noqa: PLC0415

        return gather_sights([self], batch)[0]

    def forget(self) -> "Sight":
        """The same without q and k: the statistics stay, later questions can't be answered."""
        return replace(self, kept=())

    def with_kept(self, kept: tuple[Block, ...]) -> "Sight":
        """The same, answering later questions from something else."""
        return replace(self, kept=kept)

    def to(self, device: torch.device | str) -> "Sight":
        """The same on another device."""
        kept = tuple(x.to(device) for x in self.kept)
        moved = {n: x.to(device) for n, x in self.statistics.items()}
        backward = None if self.backward is None else self.backward.to(device)
        return replace(self, statistics=moved, kept=kept, backward=backward)

    def cpu(self) -> "Sight":
        """The same in main memory."""
        return self.to("cpu")

    def __getstate__(self) -> dict[str, Any]:
        """What is copied or sent: of memory that several sights share, its own part.

        FlexAttention's functions can't be, so what needs them stays behind.
        """
        kept = () if any(piece.inputs.modify is not None for piece in self.kept) else self.kept
        statistics = {name: _own_part(x) for name, x in self.statistics.items()}
        return self.__dict__ | {"kept": kept, "statistics": statistics}

    def save(self, path: str | Path, *, keep: bool = False) -> None:
        """Write the statistics to a safetensors file.

        Args:
            path: The file.
            keep: Also write q, k and the mask, for later questions: as much as ``kept_nbytes``.
        """
        from sightline.look.files import save  # noqa: PLC0415

        check_bool("keep", keep)
        save(self, path, keep=keep)

    def numpy(self) -> "dict[str, np.ndarray[Any, Any]]":
        """The statistics as numpy arrays, by name."""
        return {name: x.detach().cpu().numpy() for name, x in self.statistics.items()}

    def to_json(self) -> str:
        """What was measured as a JSON object, numbers as nested lists; -inf and NaN as null."""
        from sightline.look.export import sight_to_dict  # noqa: PLC0415

        return json.dumps(sight_to_dict(self))

    def to_pandas(self) -> "pd.DataFrame":
        """A row for each query of each item and head; pandas has to be installed."""
        from sightline.look.export import sight_to_frame  # noqa: PLC0415

        return sight_to_frame(self)

    def __sub__(self, other: "Sight") -> "SightDifference":
        """What this one looks at more, or less, than another: of as many items, heads, queries and keys."""
        if not isinstance(other, Sight):
            return NotImplemented
        from sightline.look.difference import SightDifference  # noqa: PLC0415

        return SightDifference(self, other)

    def _repr_png_(self) -> bytes | None:
        """For notebooks: the weights, averaged over items and heads; None where they are not to be had."""
        from sightline.look.picture import to_png  # noqa: PLC0415

        measured = self.statistics.get("map")
        if self.shard is not None and self.shard.queries is not None:  # it would wait for the other ranks
            return None
        if measured is None and (not self.kept or any(x.inputs.was_modified for x in self.kept)):
            return None
        if not self.t or not self.s:
            return None
        size = (min(self.t, _PICTURE), min(self.s, _PICTURE))
        cells = self.map(size) if measured is None else measured
        return to_png(cells.flatten(0, -3).mean(0) if cells.dim() > 2 else cells)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from sightline.look.picture import as_data_uri  # noqa: PLC0415

        facts, png = f"<pre>{html.escape(repr(self))}</pre>", self._repr_png_()
        if png is None:
            return facts
        alt = "The weights, queries down and keys across, averaged over items and heads; dark is more"
        return f'{facts}<img src="{as_data_uri(png)}" alt="{alt}">'

    @classmethod
    def load(cls, path: str | Path) -> "Sight":
        """Read what :meth:`save` wrote."""
        from sightline.look.files import load  # noqa: PLC0415

        return load(cls, path)

    def __repr__(self) -> str:
        """What a person wants to know first."""
        from sightline.look.describe import describe  # noqa: PLC0415

        return describe(self)


class Transposed(NamedTuple):
    """The transposed matrix of weights, for products: ``sight.T @ y``."""

    sight: Sight

    def __matmul__(self, y: Float[Tensor, "... T C"]) -> Float[Tensor, "... S C"]:
        """Multiply with columns, one number for each query."""
        sight = self.sight
        factors = sight._factors(y, sight.t, "T")
        found: Tensor = sight._ask(Weighted(factors), "a product with the weights")
        return found


def axes_of(measures: Sequence[Measure], names: Iterable[str]) -> dict[str, OutAxis]:
    """Return what statistics of several measures have numbers for, of those that are not known by name."""
    axes: dict[str, OutAxis] = {}
    for name in names:
        own = next((m for m in measures if any(out.name == name for out in m.outputs)), None)
        m = own or next((m for m in measures if type(m).finish is not Measure.finish), None)
        if m is not None and name not in _AXES:
            axes[name] = m.axis_of(name)
    return axes


def _check_slice(i: object) -> None:
    if not isinstance(i, slice):
        return
    if not all(x is None or is_integer(x) for x in (i.start, i.stop, i.step)):
        raise TypeError(f"a slice of a sight is of whole numbers, got {format_value(i)}")
    if i.step is not None and i.step < 1:
        raise ValueError(f"a slice of a sight goes forward, got a step of {i.step}; leave it out")


def _own_part(x: Tensor) -> Tensor:
    """A tensor in memory of its own, where it is a part of a larger one."""
    is_part = x.layout == torch.strided and x.grad_fn is None and x.untyped_storage().nbytes() > x.nbytes
    return x.clone() if is_part else x


def count_batch_dims(lead: tuple[int, ...]) -> int:
    """How many of the leading dimensions count as batch: with two or more, the last are the heads."""
    return max(len(lead) - 1, min(len(lead), 1))
