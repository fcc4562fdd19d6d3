"""``Sight``, what was seen: questions are in ``sight_questions.py``, its data in ``sight_data.py``."""

import html
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sightline.look.groups import is_integer
from sightline.look.inputs import PrecomputedWeights, ScoreInputs, as_index
from sightline.look.measure import measure
from sightline.look.notebook import NotebookRepr
from sightline.look.request import Look, Size, Span, check_measure, make_cells
from sightline.look.sight_data import NAN_AT_PADDING, UNKNOWN_PADDING, CallShape, SavedInputs, nan_where
from sightline.look.sight_questions import SightQuestions, pad_last
from sightline.messages import check_bool, format_value

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd  # type: ignore[import-untyped,import-not-found,unused-ignore]

    from sightline.look.difference import SightDifference

__all__ = [
    "CallShape",
    "Look",
    "SavedInputs",
    "Sight",
    "Size",
    "Span",
    "check_measure",
    "count_batch_dims",
    "make_cells",
    "measure_sight",
    "pad_last",
]

_STATISTICS = ("lse", "received", "entropy", "peak", "peak_at", "map", "top", "top_at")  # in Stats' order
_AVERAGED = ("output", "entropy", "peak", "received", "map")
_PICTURE = 96  # cells of the picture that a notebook shows, down and across, at most


class Sight(SightQuestions, NotebookRepr):
    """What was seen of one attention: statistics of its weights, which were never stored.

    Statistics have the leading dimensions of q, usually ``(B, H)``. What was not measured raises a sentence
    that says how to ask. While q and k are kept, :meth:`map`, :meth:`rows` and :meth:`top` answer any
    question later; :meth:`forget` lets them go. ``sight[0]`` is the first item of the batch,
    ``sight[0, 2:4]`` two of its heads.
    """

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

    def __getitem__(self, index: int | slice | tuple[int | slice, ...]) -> "Sight":
        """Some items of the batch and some heads: ``sight[0]``, ``sight[:, 2]``, ``sight[0, 2:4]``."""
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
        kept = tuple(
            x._replace(inputs=x.inputs.select(b, h), lse=x.lse[as_index(b)][:, as_index(h)])
            for x in self.kept
        )
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

    def with_kept(self, kept: tuple[SavedInputs, ...]) -> "Sight":
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

        return load(path)

    def __repr__(self) -> str:
        """What a person wants to know first."""
        from sightline.look.describe import describe  # noqa: PLC0415

        return describe(self)


def _check_slice(i: object) -> None:
    if not isinstance(i, slice):
        return
    if not all(x is None or is_integer(x) for x in (i.start, i.stop, i.step)):
        raise TypeError(f"a slice of a sight is of whole numbers, got {format_value(i)}")
    if i.step is not None and i.step < 1:
        raise ValueError(f"a slice of a sight goes forward, got a step of {i.step}; leave it out")


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
    statistics = {n: x for n, x in zip(_STATISTICS, stats, strict=True) if x is not None}
    if padding and padding != UNKNOWN_PADDING:
        hidden = inputs.padding if inputs.padding is not None else inputs.q.new_zeros((), dtype=torch.bool)
        statistics["is_padding"] = hidden = hidden.expand(inputs.shape[:3])
        for n in statistics.keys() & set(NAN_AT_PADDING):
            statistics[n] = nan_where(hidden, statistics[n])
    if len(lead) != 2:
        statistics = {n: x.reshape(*lead, *x.shape[2:]) for n, x in statistics.items()}
    if output is not None:
        statistics["output"] = output
    kept = (_keep_inputs(inputs, stats.lse),) if keep else ()
    return Sight(
        t, s, lead, statistics, kept, name, n_batch=count_batch_dims(lead), source=source, padding=padding,
        tokens=tokens, is_masked=inputs.may_forbid,
    )  # fmt: skip


def _keep_inputs(inputs: ScoreInputs, lse: Tensor) -> SavedInputs:
    if isinstance(inputs, PrecomputedWeights):
        return SavedInputs(inputs.with_versions(), torch.zeros_like(lse))
    inputs = inputs if inputs.requires_grad else inputs.detached()  # a look without gradients stays without
    return SavedInputs(inputs.countable().with_versions(), lse)


def _own_part(x: Tensor) -> Tensor:
    """A tensor in memory of its own, where it is a part of a larger one."""
    is_part = x.layout == torch.strided and x.grad_fn is None and x.untyped_storage().nbytes() > x.nbytes
    return x.clone() if is_part else x


def count_batch_dims(lead: tuple[int, ...]) -> int:
    """How many of the leading dimensions count as batch: with two or more, the last are the heads."""
    return max(len(lead) - 1, min(len(lead), 1))
