"""``Look``, what to measure; ``Sight``, what was seen."""

import html
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import torch
from torch import Tensor

from sightline.look.backward_record import BackwardRecord
from sightline.look.groups import Groups, KeyGroups, Keys, is_integer
from sightline.look.measure import measure
from sightline.look.received_from import Reduce
from sightline.look.score_inputs import ScoreInputs, StoredRows, as_index
from sightline.look.stream import Cells, StatsRequest, pool
from sightline.shapes import Bool, Float, Int

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd  # type: ignore[import-untyped,import-not-found,unused-ignore]

    from sightline.look.difference import SightDifference
    from sightline.look.relevance import Relevance

__all__ = ["Look", "Sight"]

_PICTURE = 96  # cells of the picture that a notebook shows, down and across, at most

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
    """

    received: bool = True
    entropy: bool = True
    peak: bool = True
    map: Size | None = None
    top: int | None = None

    def __post_init__(self) -> None:
        if self.top is not None and (not is_integer(self.top) or self.top < 1):
            raise ValueError(f"top must be a whole number >= 1, got {self.top!r}; None keeps no weights")
        if self.map is not None and min(parse_map_size(self.map)) < 1:
            raise ValueError(f"a map must be at least 1 x 1, got {self.map}; None draws none")

    def clip(self, t: int, s: int) -> "Look":
        """As much of it as T queries and S keys have: a map that is too large, or a top, is cut to them."""
        if self.map is None and self.top is None:
            return self
        rows, columns = parse_map_size(self.map or 0)
        size = (min(rows, t), min(columns, s)) if rows and t and s else None
        return replace(self, map=size, top=min(self.top or 0, s) or None)

    def request(self, t: int, s: int) -> StatsRequest:
        """The same as an order to the second pass over T x S."""
        if self.top is not None:
            check_top(self.top, s)
        cells = None if self.map is None else make_cells(self.map, t, s)
        return StatsRequest(self.received, self.entropy, self.peak, cells, self.top)


class KeptInputs(NamedTuple):
    """What later questions are answered from: some queries, the keys they looked at, and their lse."""

    inputs: ScoreInputs
    lse: Float[Tensor, "B H T"]
    first_key: int = 0  # where in the whole sequence the first key stands
    first_query: int | None = None  # the same of the first query, where it is known


class CallShape(NamedTuple):
    """A call that was not measured: all that is known is where it leaves those after it."""

    lead: tuple[int, ...]
    t: int
    s: int
    parents: Int[Tensor, " B"] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Sight:
    """What was seen of one attention: statistics of its weights, which were never stored.

    Statistics have the leading dimensions of q, usually ``(B, H)``. What was not measured raises a sentence
    that says how to ask. While q and k are kept, :meth:`map`, :meth:`rows` and :meth:`top` answer any
    question later; :meth:`forget` lets them go. ``sight[0]`` is the first item of the batch,
    ``sight[0, 2:4]`` two of its heads.

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
        padding: ``left out`` where queries that are padding were known: they count as queries that look at
            nothing. ``unknown`` where keys are masked and it can't be told which queries are padding: if
            some are, they are counted.
        tokens: The tokens of each item of the batch, where ``watch(tokens=...)`` was told.
        backward: What the backward pass tells, where the model was watched with ``grad=True``.
        skipped: The calls of the same module since the sight before, which ``watch(every=...)`` left out.
        after: The call after this one, if it was left out.
        parents: Which item of the call before each item goes on from, where beam search moved them.
        is_followed: Whether stacked steps have been put together by that.
        is_masked: Whether some queries may not look at some keys.
    """

    t: int
    s: int
    lead: tuple[int, ...]
    statistics: dict[str, Tensor]
    kept: tuple[KeptInputs, ...] = ()
    name: str = ""
    averaged: bool = False
    n_batch: int = 1
    source: str = "kernel"
    padding: str = ""
    tokens: tuple[tuple[str, ...], ...] = ()
    backward: BackwardRecord | None = None
    skipped: tuple[CallShape, ...] = ()
    after: CallShape | None = None
    parents: Int[Tensor, " B"] | None = None
    is_followed: bool = False
    is_masked: bool = False

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
        asked = index.tolist() if isinstance(index, Tensor) else index
        chosen = list(asked) if isinstance(asked, Iterable) else [asked]
        strange = [i for i in chosen if not is_integer(i)]
        if strange:
            raise TypeError(f"rows are asked for by whole numbers, got {strange[0]!r}")
        wrong = [i for i in chosen if not -self.t <= i < self.t]
        if wrong:
            raise ValueError(f"rows must be queries in 0..{self.t - 1}, got {wrong[0]}; T is {self.t} here")
        kept = self.require_kept("rows")
        rows = [self._pool(kept, Cells(1, self.s, (i % self.t, i % self.t + 1), (0, self.s))) for i in chosen]
        return torch.cat(rows, dim=-2) if rows else kept[0].lse.new_zeros(*self.shape, 0, self.s)

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
        return self.restore_lead(torch.cat(values, dim=2)), self.restore_lead(torch.cat(indices, dim=2))

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

    def mean_heads(self) -> "Sight":
        """The mean over the heads; what only single heads have, such as peak_at, is left out."""
        if self.averaged:
            return self
        if not self.has_heads:
            raise ValueError(f"this sight has no heads to average, its leading dimensions are {self.lead}")
        dim = len(self.lead) - 1
        means = {n: x.mean(dim) for n, x in self.statistics.items() if n in _AVERAGED}
        return replace(self, statistics=means, averaged=True)

    def __getitem__(self, index: int | slice | tuple[int | slice, ...]) -> "Sight":
        """Some items of the batch and some heads: ``sight[0]``, ``sight[:, 2]``, ``sight[0, 2:4]``."""
        index = index if isinstance(index, tuple) else (index,)
        shape = self.shape
        if len(index) > len(shape):
            raise ValueError(f"this sight has leading dimensions {shape}, got {len(index)} indices, {index}")
        for i in index:
            if not isinstance(i, slice) and not is_integer(i):
                raise TypeError(f"a sight is indexed by whole numbers and slices, got {type(i).__name__}")
        index = tuple(i if isinstance(i, slice) else int(i) for i in index)
        for i, n in zip(index, shape, strict=False):
            if isinstance(i, int) and not -n <= i < n:
                raise ValueError(f"index {i} is out of range for leading dimensions {shape}")
        statistics = {name: x[index] for name, x in self.statistics.items()}
        n = self.n_batch
        batch = torch.arange(math.prod(self.lead[:n])).view(self.lead[:n])[index[:n]]
        heads = torch.arange(math.prod(self.lead[n:])).view(self.lead[n:])[index[n:]]
        b, h = batch.flatten().tolist(), heads.flatten().tolist()
        kept = tuple(
            x._replace(inputs=x.inputs.select(b, h), lse=x.lse[as_index(b)][:, as_index(h)])
            for x in self.kept
        )
        lead = (*batch.shape, *heads.shape)
        tokens = tuple(self.tokens[i] for i in b) if len(self.tokens) > max(b, default=-1) else self.tokens
        backward = None if self.backward is None else self.backward.select(b, h)
        cut = replace(self, statistics=statistics, kept=kept, lead=lead, n_batch=batch.dim(), tokens=tokens)
        return replace(cut, backward=backward)

    def forget(self) -> "Sight":
        """The same without q and k: the statistics stay, later questions can't be answered."""
        return replace(self, kept=())

    def with_kept(self, kept: tuple[KeptInputs, ...]) -> "Sight":
        """The same, answering later questions from something else."""
        return replace(self, kept=kept)

    def to(self, device: torch.device | str) -> "Sight":
        """The same on another device."""
        kept = tuple(x._replace(inputs=x.inputs.to(device), lse=x.lse.to(device)) for x in self.kept)
        moved = {n: x.to(device) for n, x in self.statistics.items()}
        backward = None if self.backward is None else self.backward.to(device)
        return replace(self, statistics=moved, kept=kept, backward=backward)

    def cpu(self) -> "Sight":
        """The same in main memory."""
        return self.to("cpu")

    @property
    def is_looking(self) -> Bool[Tensor, "... T"]:
        """Which queries look at anything: not those that may not, nor padding that was left out."""
        if "lse" in self.statistics:
            return self.lse > -torch.inf
        return self.statistics["peak"] > 0  # heads averaged

    @property
    def has_heads(self) -> bool:
        """Whether there is a dimension of heads that is not averaged yet."""
        return len(self.lead) > self.n_batch and not self.averaged

    @property
    def kept_nbytes(self) -> int:
        """How much memory q and k take, if nobody else holds on to them."""
        return sum(x.inputs.nbytes + x.lse.nbytes for x in self.kept)

    @property
    def nbytes(self) -> int:
        """How much memory the statistics and what is kept take."""
        return sum(x.nbytes for x in self.statistics.values()) + self.kept_nbytes

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
        alt = "The weights, queries down and keys across, averaged over items and heads; bright is more"
        return f'{facts}<img src="{as_data_uri(png)}" alt="{alt}">'

    @classmethod
    def load(cls, path: str | Path) -> "Sight":
        """Read what :meth:`save` wrote."""
        from sightline.look.files import load  # noqa: PLC0415

        return load(path)

    def __repr__(self) -> str:
        """What a person wants to know first."""
        from sightline.look.describe import describe  # noqa: PLC0415

        return describe(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions of the statistics before T or S: those of q, without the heads once averaged."""
        return self.lead[:-1] if self.averaged else self.lead

    def _statistic(self, name: str, remedy: str) -> Tensor:
        if name not in self.statistics:
            raise ValueError(f"this sight has no {name}; {remedy}")
        return self.statistics[name]

    def require_kept(
        self, what: str, beforehand: str | None = None, *, history: bool = False
    ) -> tuple[KeptInputs, ...]:
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
            raise ValueError(
                f"{what} can't be had any more, q or k was written to since it was kept; "
                f"look at a clone{remedy}"
            )
        if history:
            return self.kept
        return tuple(x._replace(inputs=x.inputs.detached(), lse=x.lse.detach()) for x in self.kept)

    def check_span(self, name: str, span: Span | None) -> Span:
        """A range of queries or keys within those that there are; all of them by default."""
        n = self.t if name == "queries" else self.s
        whole = (0, n) if span is None else span
        if not is_integer_pair(whole) or not 0 <= whole[0] < whole[1] <= n:
            raise ValueError(f"{name} must be a range (first, past_the_last) within 0..{n}, got {whole!r}")
        return whole

    def _pool(self, kept: tuple[KeptInputs, ...], cells: Cells) -> Tensor:
        total, first = None, 0
        for inputs, lse, first_key, _ in kept:
            part = pool(inputs, lse, cells, first, first_key)
            total = part if total is None else total + part
            first += inputs.shape[2]
        assert total is not None  # noqa: S101
        return self.restore_lead(total.div_(cells.areas(total.device)))

    def restore_lead(self, x: Tensor) -> Tensor:
        """(B, H, ...) in the leading dimensions that the caller knows, heads averaged where they are."""
        x = x.reshape(*self.lead, *x.shape[2:])
        return x.mean(len(self.lead) - 1) if self.averaged else x


_AVERAGED = ("output", "entropy", "peak", "received", "map")


def measure_sight(
    inputs: ScoreInputs,
    measure_: Look,
    *,
    lead: tuple[int, ...],
    lse: Tensor | None = None,
    output: Tensor | None = None,
    keep: bool = True,
    name: str = "",
    source: str = "kernel",
    padding: str = "",
    tokens: tuple[tuple[str, ...], ...] = (),
) -> Sight:
    """Measure what was asked and wrap it up."""
    t, s = inputs.shape[2:]
    stats = measure(inputs, measure_.request(t, s), lse)
    named = {
        "lse": stats.lse,
        "received": stats.received,
        "entropy": stats.entropy,
        "peak": stats.peak,
        "peak_at": stats.peak_at,
        "map": stats.cells,
        "top": stats.top,
        "top_at": stats.top_at,
    }
    statistics = {n: x for n, x in named.items() if x is not None}
    if len(lead) != 2:
        statistics = {n: x.reshape(*lead, *x.shape[2:]) for n, x in statistics.items()}
    if output is not None:
        statistics["output"] = output
    kept = (_keep_inputs(inputs, stats.lse),) if keep else ()
    sight = Sight(t, s, lead, statistics, kept, name, n_batch=count_batch_dims(lead), source=source)
    return replace(sight, padding=padding, tokens=tokens, is_masked=inputs.may_forbid)


def _keep_inputs(inputs: ScoreInputs, lse: Tensor) -> KeptInputs:
    if isinstance(inputs, StoredRows):
        return KeptInputs(inputs.with_versions(), torch.zeros_like(lse))
    inputs = inputs if inputs.requires_grad else inputs.detached()  # a look without gradients stays without
    return KeptInputs(inputs.countable().with_versions(), lse)


def _own_part(x: Tensor) -> Tensor:
    """A tensor in memory of its own, where it is a part of a larger one."""
    is_part = x.layout == torch.strided and x.grad_fn is None and x.untyped_storage().nbytes() > x.nbytes
    return x.clone() if is_part else x


def count_batch_dims(lead: tuple[int, ...]) -> int:
    """How many of the leading dimensions count as batch: with two or more, the last are the heads."""
    return max(len(lead) - 1, min(len(lead), 1))


def make_cells(size: Size, t: int, s: int, queries: Span | None = None, keys: Span | None = None) -> Cells:
    """Lay a grid over T x S or a window of it, or say why it does not fit."""
    rows, columns = parse_map_size(size)
    spans = []
    for name, span, n in (("queries", queries, t), ("keys", keys, s)):
        whole = (0, n) if span is None else span
        if not is_integer_pair(whole) or not 0 <= whole[0] < whole[1] <= n:
            raise ValueError(f"{name} must be a range (first, past_the_last) within 0..{n}, got {whole!r}")
        spans.append(whole)
    (top, bottom), (left, right) = spans
    if not 1 <= rows <= bottom - top or not 1 <= columns <= right - left:
        raise ValueError(
            f"a map has at least one cell and no more than queries and keys, got {rows} x {columns} "
            f"cells for {bottom - top} queries and {right - left} keys; the largest is "
            f"{bottom - top, right - left}"
        )
    return Cells(rows, columns, (top, bottom), (left, right))


def check_top(k: int, s: int) -> None:
    """Refuse to keep more weights than a query has."""
    if not is_integer(k) or not 1 <= k <= s:
        raise ValueError(
            f"top must be a whole number, at least 1 and at most the number of keys S={s}, got {k!r}"
        )


def check_measure(measure_: object) -> None:
    """Refuse an order that is no Look."""
    if not isinstance(measure_, Look):
        raise TypeError(
            f"measure must be a sl.Look, got {type(measure_).__name__}; sl.Look(map=64) also draws a map"
        )


def parse_map_size(size: Size) -> tuple[int, int]:
    """Read the size of a map."""
    pair = (size, size) if is_integer(size) else size
    if not is_integer_pair(pair):
        raise ValueError(f"the size of a map is a whole number or (rows, columns), got {size!r}")
    return pair


def is_integer_pair(x: object) -> TypeGuard[tuple[int, int]]:
    """Whether it is two whole numbers."""
    return isinstance(x, tuple | list) and len(x) == 2 and all(map(is_integer, x))


def pad_last(x: Tensor, width: int, value: float) -> Tensor:
    """Widen the last dimension to ``width``."""
    return torch.nn.functional.pad(x, (0, width - x.size(-1)), value=value)
