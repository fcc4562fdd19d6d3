"""What a sight is made of: statistics by name, and what later questions are answered from."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sightline.look.inputs import ScoreInputs
from sightline.look.output_gradient import OutputGradient
from sightline.look.request import Span, is_integer_pair
from sightline.look.sharded.axes import Shard
from sightline.shapes import Bool, Float, Int

__all__ = [
    "NAN_AT_PADDING",
    "NO_PADDING",
    "UNKNOWN_PADDING",
    "CallShape",
    "SavedInputs",
    "SightData",
    "nan_where",
]

NO_PADDING = ""  # nobody has said that anything is padding
UNKNOWN_PADDING = "unknown"  # somebody has, of a sequence of another length
NAN_AT_PADDING = ("lse", "entropy", "peak", "top")  # statistics of a query
_OF_QUERIES = NAN_AT_PADDING[:3]


class SavedInputs(NamedTuple):
    """What later questions are answered from: some queries, the keys they looked at, and their lse."""

    inputs: ScoreInputs
    lse: Float[Tensor, "B H T"]
    first_key: int = 0  # where in the whole sequence the first key stands
    first_query: int | None = None  # the same of the first query, where it is known

    def to(self, device: torch.device | str) -> "SavedInputs":
        """The same on another device."""
        return self._replace(inputs=self.inputs.to(device), lse=self.lse.to(device))


class CallShape(NamedTuple):
    """A call that was not measured: all that is known is where it leaves those after it."""

    lead: tuple[int, ...]
    t: int
    s: int
    parents: Int[Tensor, " B"] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class SightData:
    """The statistics of one attention, and what was kept of it.

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
        tokens: The tokens of each item of the batch, where ``watch(tokens=...)`` was told.
        backward: What the backward pass tells, where the model was watched with ``grad=True``.
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
    kept: tuple[SavedInputs, ...] = ()
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

    @property
    def kept_nbytes(self) -> int:
        """How much memory q and k take, if nobody else holds on to them."""
        return sum(x.inputs.nbytes + x.lse.nbytes for x in self.kept)

    @property
    def nbytes(self) -> int:
        """How much memory the statistics and what is kept take."""
        return sum(x.nbytes for x in self.statistics.values()) + self.kept_nbytes

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
    ) -> tuple[SavedInputs, ...]:
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
        device = next((x.device for x in self.statistics.values()), kept[0].lse.device)
        if kept[0].lse.device != device:  # they wait in main memory
            kept = tuple(x.to(device) for x in kept)
        if history:
            return kept
        return tuple(x._replace(inputs=x.inputs.detached(), lse=x.lse.detach()) for x in kept)

    def require_whole(self, what: str) -> None:
        """Refuse a question about a whole sequence to a sight of this rank's part of it."""
        if self.shard is not None and self.shard.queries is not None:
            raise ValueError(
                f"{what} needs the whole sequence, and this rank has {self.shard}; ask what gather() gives"
            )

    def check_span(self, name: str, span: Span | None) -> Span:
        """A range of queries or keys within those that there are; all of them by default."""
        n = self.t if name == "queries" else self.s
        whole = (0, n) if span is None else span
        if not is_integer_pair(whole) or not 0 <= whole[0] < whole[1] <= n:
            raise ValueError(f"{name} must be a range (first, past_the_last) within 0..{n}, got {whole!r}")
        return whole

    def restore_lead(self, x: Tensor) -> Tensor:
        """(B, H, ...) in the leading dimensions that the caller knows, heads averaged where they are."""
        x = x.reshape(*self.lead, *x.shape[2:])
        return x.mean(len(self.lead) - 1) if self.averaged else x

    def restore_queries(self, x: Tensor) -> Tensor:
        """(B, H, T, ...) in the leading dimensions that the caller knows, NaN at queries that are padding."""
        x = self.restore_lead(x)
        return nan_where(self.is_padding, x) if "is_padding" in self.statistics else x


def nan_where(hidden: Bool[Tensor, "..."], x: Tensor) -> Tensor:
    """NaN where ``hidden`` is True; it may have fewer dimensions at the end."""
    return x.masked_fill(hidden.reshape(*hidden.shape, *(1,) * (x.dim() - hidden.dim())), torch.nan)
