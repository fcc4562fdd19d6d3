"""Which kernel answers which measures, on which device, under which conditions.

The engine goes down this table before it computes tiles of its own. A kernel takes the measures that it knows
by their exact type: a subclass may mean something else, and goes to the tiles.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sightline.attention.kernels import interpreted
from sightline.look import kernels
from sightline.look.cells import Cells
from sightline.look.inputs import PrecomputedWeights, ScoreInputs
from sightline.look.kernels import mass as on_gpu
from sightline.look.kernels import plans
from sightline.look.kernels.covers import covers
from sightline.look.kernels.differentiable import measure as measure_with_gradients
from sightline.look.kernels.measure import measure
from sightline.look.kernels.offsets import offsets
from sightline.look.kernels.received_from import received_from
from sightline.look.kernels.relevance import relevance
from sightline.look.kernels.request import Stats, StatsRequest
from sightline.look.key_groups import KeyGroups
from sightline.look.measure import Lse, Measure, Tensors
from sightline.look.measures_basic import Entropy, Map, Peak, Received, Top
from sightline.look.measures_more import (
    Columns,
    Mass,
    Offsets,
    ReceivedFrom,
    Relevance,
    Weighted,
    position_of,
)
from sightline.look.source import Block
from sightline.look.weights import usable_lse

__all__ = ["TABLE", "Kernel", "answer"]

_FEW = 1 << 22  # with fewer pairs a head, laying out the keys takes longer than a product
_WIDEST = 256  # values that the kernel of relevance takes

Shape = tuple[int, int, int, int]
Answers = Mapping[Measure, Tensors]


class Kernel(NamedTuple):
    """A row of the table.

    Attributes:
        answers: The types of the measures that it knows.
        run: Answers those of the measures that it can, of one block; {} where it fits none.
        gradients: Whether it carries gradients.
    """

    answers: frozenset[type[Measure]]
    run: Callable[[Sequence[Measure], Block, Shape], Answers]
    gradients: bool = False


def answer(measures: Sequence[Measure], block: Block, shape: Shape) -> dict[Measure, Tensors]:
    """Return what kernels have found of a block, by measure; the tiles answer what is missing.

    Args:
        measures: What is asked, fitted.
        block: Which queries and keys.
        shape: (B, H, T, S) of what comes out.
    """
    found: dict[Measure, Tensors] = {}
    if block.is_part or isinstance(block.inputs, PrecomputedWeights):
        return found
    grad = block.inputs.requires_grad or (
        torch.is_grad_enabled() and block.lse is not None and block.lse.requires_grad
    )
    for kernel in TABLE:
        known = [m for m in measures if type(m) in kernel.answers and m not in found]
        if known and (kernel.gradients or not grad):
            found.update(kernel.run(known, block, shape))
    return found


def _statistics(measures: Sequence[Measure], block: Block, shape: Shape) -> Answers:
    """Answer what one pass over the weights finds out, replayed where the same was launched before."""
    inputs, lse = block.inputs, block.lse
    if lse is not None and lse.dtype is torch.float64:
        lse = lse.float()
    is_all = inputs.shape == shape and not block.query and not block.key
    whole = (0, shape[2]), (0, shape[3])
    known = [
        m for m in measures if not isinstance(m, Map) or (is_all and (m.grid.queries, m.grid.keys) == whole)
    ]
    tops, maps = ([m for m in known if isinstance(m, kind)] for kind in (Top, Map))
    if not known or len(tops) > 1 or len(maps) > 1:
        return {}
    if all(type(m) is Lse for m in known):
        ready = usable_lse(Block(inputs, lse))
        if ready is not None:
            return dict.fromkeys(known, (ready,))
    stats = _measure(inputs, _request(known, inputs.shape[3]), lse)
    for maxima in (Top, Peak):  # which Triton compiles into wrong ones with some masks
        if stats is None and any(isinstance(m, maxima) for m in known):
            known = [m for m in known if not isinstance(m, maxima)]
            stats = _measure(inputs, _request(known, inputs.shape[3]), lse) if known else None
    return {} if stats is None else {m: _parts(m, stats, block) for m in known}


def _request(measures: Sequence[Measure], s: int) -> StatsRequest:
    kinds = {type(m): m for m in measures}
    cells: Cells | None = next((m.grid for m in measures if isinstance(m, Map)), None)
    top = next((min(m.k, s) for m in measures if isinstance(m, Top)), None)
    return StatsRequest(Received in kinds, Entropy in kinds, Peak in kinds, cells, top)


def _measure(inputs: ScoreInputs, request: StatsRequest, lse: Tensor | None) -> Stats | None:
    """Measure by the kernels; None where they do not take these inputs."""
    differentiable, key = inputs.requires_grad, None
    if inputs.q.is_cuda and not differentiable:
        if lse is not None and (lse.dtype is not torch.float32 or not lse.is_contiguous()):
            lse = lse.float().contiguous()  # as the kernels read it
        key = plans.key_of(inputs, request, lse)
        stats = plans.measure_again(key, inputs, lse)
        if stats is not None:
            return stats
    if not kernels.supports(inputs, request):
        return None
    if not inputs.q.is_cuda:  # interpreted
        lse = usable_lse(Block(inputs, lse))
    if differentiable:
        return measure_with_gradients(inputs, request, lse)

    return plans.planned(key, inputs, lse, lambda: measure(inputs, request, lse))


def _parts(m: Measure, stats: Stats, block: Block) -> Tensors:
    """Return what was found for one measure, in the positions of the T x S that comes out."""
    if isinstance(m, Lse):
        return (stats.lse,)
    if isinstance(m, Received):
        return (_known(stats.received),)
    if isinstance(m, Entropy):
        return (_known(stats.entropy),)
    if isinstance(m, Map):  # the kernels give means
        cells = _known(stats.cells)
        return (cells * m.grid.areas(cells.device),)
    if isinstance(m, Peak):
        return _known(stats.peak), _shifted(_known(stats.peak_at), block.key)
    assert isinstance(m, Top)  # noqa: S101
    values, at = _known(stats.top), _shifted(_known(stats.top_at), block.key)
    rest = (0, m.k - values.size(-1))
    return torch.nn.functional.pad(values, rest), torch.nn.functional.pad(at, rest, value=-1)


def _known(x: Tensor | None) -> Tensor:
    assert x is not None  # noqa: S101
    return x


def _shifted(at: Tensor, n: int) -> Tensor:
    return torch.where(at >= 0, at + n, at) if n else at


def _masses(measures: Sequence[Measure], block: Block, shape: Shape) -> Answers:
    """Answer sums over groups of keys; a column is a group of one key."""
    inputs, lse = block.inputs, block.lse
    t, s = inputs.shape[2:]
    if lse is None or s != shape[3] or not (t * s >= _FEW or interpreted()) or not covers(inputs, lse):
        return {}
    answers = {}
    for m in measures:
        groups = _members(m, shape[3], inputs.q.device)
        if groups.names:
            plan = groups.plan(banded=bool(inputs.mask.bands), tile=on_gpu.keys_of_tile(inputs))
            answers[m] = (on_gpu.mass(inputs, lse, plan, len(groups.names)),)
    return answers


def _members(m: Measure, s: int, device: torch.device) -> KeyGroups:
    if isinstance(m, Mass):
        assert isinstance(m.groups, KeyGroups)  # noqa: S101
        return m.groups.on(device)
    assert isinstance(m, Columns)  # noqa: S101
    members = torch.zeros(s, len(m.index), dtype=torch.bool)
    members[list(m.index), list(range(len(m.index)))] = True
    return KeyGroups(marks=members, names=tuple(map(str, m.index)), device=device)


def _received_from(measures: Sequence[Measure], block: Block, shape: Shape) -> Answers:
    """Answer sums and maxima over a window of queries, and one weighted sum over all of them."""
    inputs, lse = block.inputs, block.lse
    if lse is None or inputs.shape != shape:
        return {}
    answers: dict[Measure, Tensors] = {}
    for m in measures:
        largest = isinstance(m, ReceivedFrom) and m.reduce == "max"
        if not covers(inputs, lse, maxima=largest):
            continue
        if isinstance(m, ReceivedFrom):
            answers[m] = (received_from(inputs, lse, m.queries or (0, shape[2]), largest=largest),)
        elif isinstance(m, Weighted) and m.record is None and _is_row(m.y):
            factors = m.y.reshape(-1, shape[2]).expand(shape[0], -1).contiguous()
            sums = received_from(inputs, lse, (0, shape[2]), factors=factors.to(inputs.dtype))
            answers[m] = (sums.unsqueeze(-1),)
    return answers


def _is_row(y: Tensor) -> bool:
    """Return whether it is one number for each query, the same for all heads."""
    return y.size(-1) == 1 and (y.dim() == 2 or y.size(1) == 1)


def _offsets(measures: Sequence[Measure], block: Block, shape: Shape) -> Answers:  # noqa: ARG001
    """Answer sums along the diagonals."""
    inputs, lse = block.inputs, block.lse
    if lse is None or not covers(inputs, lse):
        return {}
    answers: dict[Measure, Tensors] = {}
    for m in measures:
        assert isinstance(m, Offsets)  # noqa: S101
        first = position_of(block, m.first, block.query) - block.key
        answers[m] = (offsets(inputs, lse, m.n, first),)
    return answers


def _relevance(measures: Sequence[Measure], block: Block, shape: Shape) -> Answers:
    """Answer sums of weights times their gradients."""
    inputs, lse = block.inputs, block.lse
    if lse is None or inputs.shape != shape:
        return {}
    answers: dict[Measure, Tensors] = {}
    for m in measures:
        record = m.record if isinstance(m, Relevance | Weighted) else None
        gradient = None if record is None else record.gradient
        if record is None or gradient is None:
            continue
        same = record.v.dtype == gradient.dtype == inputs.q.dtype
        if not same or not 0 < record.v.size(3) <= _WIDEST or not covers(inputs, lse):
            continue

        if isinstance(m, Relevance):
            sums = relevance(inputs, lse, record.v, gradient)
            answers[m] = sums.keys, _known(sums.queries)
        elif isinstance(m, Weighted) and _is_row(m.y):
            factors = m.y.reshape(-1, shape[2]).expand(shape[0], -1).contiguous().to(inputs.dtype)
            answers[m] = (relevance(inputs, lse, record.v, gradient, factors=factors).keys.unsqueeze(-1),)
    return answers


TABLE: tuple[Kernel, ...] = (
    Kernel(frozenset((Lse, Received, Entropy, Peak, Map, Top)), _statistics, gradients=True),
    Kernel(frozenset((Mass, Columns)), _masses),
    Kernel(frozenset((ReceivedFrom, Weighted)), _received_from),
    Kernel(frozenset((Offsets,)), _offsets),
    Kernel(frozenset((Relevance, Weighted)), _relevance),
)
