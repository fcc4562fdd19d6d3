"""What is asked of a look or a watch, as measures that fit a call; and the sight that answers it."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sightline.look.calls import UNKNOWN_PADDING
from sightline.look.engine import collect, finish
from sightline.look.inputs import PrecomputedWeights, ScoreInputs
from sightline.look.measure import Lse, Measure
from sightline.look.measures_basic import Entropy, Map, Peak, Received, Top
from sightline.look.request import Look, check_top, make_cells
from sightline.look.sight import Sight, count_batch_dims
from sightline.look.source import Block, Local, OutAxis
from sightline.shapes import Bool, Float

__all__ = ["Asked", "check_measure", "fitted", "measure_sight", "measures_of"]

_LSE, _RECEIVED, _ENTROPY, _PEAK = Lse(), Received(), Entropy(), Peak()

_OF_LOOK = frozenset((Lse, Received, Entropy, Peak, Map, Top))  # whose answers a sight knows by name

Asked = Look | tuple[Measure, ...]


def check_measure(measure: Any) -> Asked:
    """Return what is asked, or refuse it: a Look, a measure or a list of measures."""
    if isinstance(measure, Look):
        return measure
    listed = (measure,) if isinstance(measure, Measure) else measure
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise TypeError(
            f"measure must be a sl.Look or a list of sl.measures, got {type(measure).__name__}; "
            "sl.Look(map=64) also draws a map"
        )
    for one in listed:
        if not isinstance(one, Measure):
            raise TypeError(f"measure must hold measures such as sl.measures.Entropy(), got {_name_of(one)}")
        if not hasattr(one, "outputs"):
            raise TypeError(
                f"the measure {type(one).__name__} has no outputs; name what it gives, such as "
                "outputs = (sl.measures.Out('mean', 'query'),)"
            )
    names = [out.name for one in listed for out in one.outputs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(
            f"measure asks for {twice!r} twice; give one a name of its own, as Mass(..., name=) has"
        )
    return tuple(listed)


def _name_of(x: object) -> str:
    return f"the class {x.__name__}; call it" if isinstance(x, type) else type(x).__name__


def measures_of(asked: Asked) -> tuple[Measure, ...]:
    """Return the measures that are asked, the log-sum-exp first."""
    if not isinstance(asked, Look):
        return asked if any(type(m) is Lse for m in asked) else (_LSE, *asked)
    chosen: list[Measure] = [_LSE]
    for name, m in (("received", _RECEIVED), ("entropy", _ENTROPY), ("peak", _PEAK)):
        if getattr(asked, name):
            chosen.append(m)
    if asked.map is not None:
        chosen.append(Map(asked.map))
    return tuple(chosen) if asked.top is None else (*chosen, Top(asked.top))


def fitted(asked: Asked, t: int, s: int, n_calls: int = 1, *, strict: bool = False) -> tuple[Measure, ...]:
    """Return the measures for calls of T queries and S keys.

    Args:
        asked: What was asked.
        t, s: The sizes of a call.
        n_calls: How many calls are stacked along the batch.
        strict: Whether to refuse a map or a top that is too large, instead of cutting it to what there is.
    """
    if not isinstance(asked, Look):
        for m in asked if strict else ():
            m.check(t, s)
        return tuple(m.fit(t, s, n_calls) for m in measures_of(asked))
    return _fitted(asked, t, s, strict)


@functools.lru_cache(256)
def _fitted(look: Look, t: int, s: int, strict: bool) -> tuple[Measure, ...]:
    """Return the measures of a look, kept, since models look at the same sizes again and again."""
    if strict:
        if look.top is not None:
            check_top(look.top, s)
        if look.map is not None:
            make_cells(look.map, t, s)
    else:
        look = look.clip(t, s)
    return tuple(m.fit(t, s) for m in measures_of(look))


def measure_sight(
    inputs: ScoreInputs,
    measures: Sequence[Measure],
    *,
    lead: tuple[int, ...],
    lse: Float[Tensor, "B H T"] | None = None,
    output: Tensor | None = None,
    keep: bool = True,
    name: str = "",
    source: str = "kernel",
    padding: str = "",
    tokens: tuple[tuple[str, ...], ...] = (),
) -> Sight:
    """Measure one call and wrap up what was found.

    Args:
        inputs: What its weights are made of.
        measures: What is asked, fitted to it, the log-sum-exp first.
        lead: The dimensions before T and S.
        lse: The log-sum-exp that a kernel gave; of precomputed weights that of the scores they were made of.
        output: What the attention gave.
        keep: Whether to hold on to q and k for later questions.
        name, source, padding, tokens: What a sight says of itself.
    """
    block = Block(inputs, lse)
    if isinstance(inputs, PrecomputedWeights):
        block = Block(inputs, inputs.q.new_zeros(inputs.shape[:3], dtype=torch.float64), recorded=lse)
    hidden = None
    if padding and padding != UNKNOWN_PADDING:
        hidden = inputs.padding if inputs.padding is not None else inputs.q.new_zeros((), dtype=torch.bool)
        hidden = hidden.expand(inputs.shape[:3])
    statistics, axes, exact = _answers(measures, block, hidden)
    if hidden is not None:
        statistics["is_padding"] = hidden
    if len(lead) != 2:
        statistics = {key: x.reshape(*lead, *x.shape[2:]) for key, x in statistics.items()}
    if output is not None:
        statistics["output"] = output
    t, s = inputs.shape[2:]
    return Sight(
        t, s, lead, statistics, (_saved(block, exact),) if keep else (), name,
        n_batch=count_batch_dims(lead), source=source, padding=padding, tokens=tokens,
        is_masked=inputs.may_forbid, axes=axes,
    )  # fmt: skip


def _answers(
    measures: Sequence[Measure], block: Block, hidden: Bool[Tensor, "B H T"] | None
) -> tuple[dict[str, Tensor], dict[str, OutAxis], Tensor]:
    """Return what was found by name, the axes of what is not known by name, and the exact log-sum-exp."""
    statistics: dict[str, Tensor] = {}
    axes: dict[str, OutAxis] = {}
    exact, dtype = None, block.inputs.dtype
    for m, parts in collect(measures, Local(block)).items():
        answers = finish({m: parts})
        if type(m) is Lse:
            exact = answers["lse"]
            answers = {"lse": exact if exact.dtype == dtype else exact.to(dtype)}
        if hidden is not None:
            answers = m.hide(answers, hidden)
        statistics.update(answers)
        if type(m) not in _OF_LOOK:
            for key in answers:
                axes[key] = m.axis_of(key)
    assert exact is not None  # noqa: S101
    return statistics, axes, exact


def _saved(block: Block, lse: Tensor) -> Block:
    """Return what later questions are answered from; a look without gradients stays without."""
    inputs = block.inputs
    if isinstance(inputs, PrecomputedWeights):
        return replace(block, inputs=inputs.with_versions())
    inputs = inputs if inputs.requires_grad else inputs.detached()
    return Block(inputs.countable().with_versions(), lse)
