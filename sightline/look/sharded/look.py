"""``sl.look`` of q, k and v that are spread over processes: DTensors, or each rank's own with ``group=``."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from sightline.attention.attend import attention
from sightline.attention.masks import Mask, as_mask
from sightline.attention.scores import Score
from sightline.look.asked import Asked, fitted
from sightline.look.engine import run
from sightline.look.inputs import ScoreInputs
from sightline.look.measure import Lse, Measure
from sightline.look.score_inputs import make_score_inputs
from sightline.look.sharded.axes import Shard, consecutive
from sightline.look.sharded.placements import Spread, is_dtensor, local, spread_of
from sightline.look.sharded.ring import Ring, RingSource, check_mask, exchange_lengths, make_ring
from sightline.look.sight import Sight, axes_of
from sightline.look.source import Block, Local
from sightline.shapes import Float
from sightline.watch.attention_call import UnreadableError

__all__ = ["look_at_dtensors", "look_in_group", "sight_of"]


def look_in_group(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Any,
    *,
    group: Any,
    measure: Asked,
    score: Score | str | None,
    scale: float | None,
    keep: bool,
) -> Sight:
    """Look with this rank's queries at the keys of all ranks; see :func:`sightline.look`."""
    if any(is_dtensor(x) for x in (q, k, v)):
        raise ValueError(
            "group= goes with plain tensors, each rank's own; DTensors know their groups themselves"
        )
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError(
            "group= needs torch.distributed to be initialised, as init_process_group does; without it, leave "
            "group= out"
        )
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(
            f"group must be a process group, got {type(group).__name__}; torch.distributed.group.WORLD has "
            "all ranks, mesh.get_group(dim) those of one dimension of a mesh"
        )
    _check(q, k, v)
    lengths = exchange_lengths(q.size(2), k.size(2), group, q.device)
    queries, keys = (consecutive([x[i] for x in lengths]) for i in (0, 1))
    ring = make_ring(group, queries, keys)
    return _look(q, k, v, mask, ring, None, measure=measure, score=score, scale=scale, keep=keep)


def look_at_dtensors(
    look: Callable[..., Sight],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Any,
    *,
    measure: Asked,
    score: Score | str | None,
    scale: float | None,
    keep: bool,
) -> Sight:
    """Look at DTensors that are spread by batch, heads or tokens; the output is spread as q is."""
    if not all(is_dtensor(x) for x in (q, k, v)):
        kinds = ", ".join(type(x).__name__ for x in (q, k, v))
        raise ValueError(
            f"q, k and v must be DTensors all three, or none, got {kinds}; distribute_tensor makes one"
        )
    _check(q, k, v)
    try:
        spread = spread_of(q, k)
        spread_of(k, v)
    except UnreadableError as error:
        raise ValueError(f"these DTensors can't be looked at: {error}") from None
    own_q, own_k, own_v = (local(x) for x in (q, k, v))
    options: dict[str, Any] = {"measure": measure, "score": score, "scale": scale, "keep": keep}
    if spread.group is None:
        sight = look(own_q, own_k, own_v, _own_mask(as_mask(mask), spread.shard), **options)
        sight = replace(sight, shard=spread.shard if spread.shard.axes else None)
    else:
        ring = make_ring(spread.group, spread.queries, spread.keys)
        sight = _look(own_q, own_k, own_v, mask, ring, spread.shard, **options)
    shape = (*q.shape[:3], v.size(3))
    return replace(sight, statistics=sight.statistics | {"output": _wrap(sight.output, spread, shape)})


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    if any(x.dim() != 4 for x in (q, k, v)):
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise ValueError(
            f"sharded q, k and v have four dimensions, (B, H, length, width), got {shapes}; insert those of "
            "size one"
        )
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)):
        raise ValueError(
            "a look at sharded q, k and v carries no gradients, got tensors that require them; look inside "
            "torch.no_grad(), or at q.detach(), k.detach() and v.detach()"
        )


def _look(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Any,
    ring: Ring,
    beside: Shard | None,
    *,
    measure: Asked,
    score: Score | str | None,
    scale: float | None,
    keep: bool,
) -> Sight:

    t, (whole_t, whole_s) = q.size(2), ring.whole
    mask = _own_mask(as_mask(mask), beside or Shard())
    mask = replace(mask, added=tuple(x.to(q.dtype) for x in mask.added))
    inputs, lead = make_score_inputs(q, k, v, Mask(), scale, score)
    tensors = Mask((), mask.lengths, mask.allowed, mask.added)
    check_mask(tensors, t, whole_s)
    tensors = tensors.fitted(lead, t, whole_s)
    inputs = replace(inputs, mask=replace(tensors, bands=mask.bands))
    v = v.repeat_interleave(inputs.k.size(1) // v.size(1), 1) if inputs.k.size(1) != v.size(1) else v
    with torch.no_grad():
        output, lse = _attend(inputs, v, ring)
        source = ring.source(inputs, lse)
        measures = without_lse(fitted(measure, whole_t, whole_s, strict=True))
        statistics = run(measures, source)
    sight = sight_of(source, statistics, measures, lead=lead, beside=beside, keep=keep)
    return replace(sight, statistics=sight.statistics | {"output": output})


def sight_of(
    source: RingSource,
    statistics: dict[str, Tensor],
    measures: Sequence[Measure],
    *,
    lead: tuple[int, ...],
    beside: Shard | None,
    keep: bool,
    name: str = "",
) -> Sight:
    """Return what was found of this rank's queries as a sight."""
    inputs, lse = source.inputs, source.lse
    assert lse is not None  # noqa: S101
    kept = (Block(inputs.detached().countable().with_versions(), lse),) if keep else ()
    t, s = source.ring.whole
    statistics = {"lse": lse.to(inputs.dtype)} | statistics
    shard = source.ring.shard(beside)
    return Sight(
        t, s, lead, statistics, kept, name, is_masked=inputs.may_forbid, shard=shard,
        axes=axes_of(measures, statistics),
    )  # fmt: skip


def without_lse(measures: Sequence[Measure]) -> tuple[Measure, ...]:
    """Return the measures of a second round, which begins with the log-sum-exp of whole rows."""
    return tuple(m for m in measures if type(m) is not Lse)


def _attend(
    inputs: ScoreInputs, v: Tensor, ring: Ring
) -> tuple[Float[Tensor, "B H T Dv"], Float[Tensor, "B H T"]]:
    """Return the output of attention to the keys of all ranks, by the fused kernel, and the lse."""
    b, h, t = inputs.q.shape[:3]
    lse = inputs.q.new_full((b, h, t), -torch.inf, dtype=torch.float64)
    output = inputs.q.new_zeros((b, h, t, v.size(-1)), dtype=inputs.dtype)
    for one, (values,) in ring.rectangles(inputs, None, v):
        part = one.block.inputs
        own = run([Lse()], Local(Block(part)))["lse"]
        before = lse[:, :, one.rows]
        after = torch.logaddexp(before, own)
        mixed = attention(part.q, part.k, values, part.mask.unfitted(), score=part.score, scale=part.scale)
        rows = output[:, :, one.rows]
        rows.mul_(_share(before, after).to(rows.dtype))
        rows.add_(mixed.to(rows.dtype) * _share(own, after).to(rows.dtype))
        lse[:, :, one.rows] = after
    return output.to(v.dtype), lse


def _share(part: Tensor, total: Tensor) -> Float[Tensor, "B H T 1"]:
    """Return what a part has of a total; nothing of nothing, and NaN of a query that is NaN."""
    return (part - total).masked_fill(total == -torch.inf, -torch.inf).exp().unsqueeze(-1)


def _own_mask(mask: Mask, shard: Shard) -> Mask:
    """A mask of the whole batch and all heads, cut to those of this rank."""
    if any(is_dtensor(x) for x in mask.tensors):
        raise ValueError(
            "the mask of DTensors q, k and v is a plain tensor of all items and heads, or one of sl.masks"
        )
    for axis, dim in ((shard.items, 0), (shard.heads, 1)):
        if axis is None:
            continue
        (span,) = axis.own
        whole = axis.size

        def cut(x: Tensor, at: int, span: tuple[int, int] = span, whole: int = whole) -> Tensor:
            return x.narrow(at, span[0], span[1] - span[0]) if x.dim() > at and x.size(at) == whole else x

        lengths = tuple(cut(x, dim) for x in mask.lengths)
        allowed = tuple(cut(x, dim) if _has_lead(x, dim, is_bool=True) else x for x in mask.allowed)
        added = tuple(_cut_added(x, dim, cut) for x in mask.added)
        mask = Mask(mask.bands, lengths, allowed, added)
    return mask


def _has_lead(x: Tensor, dim: int, *, is_bool: bool) -> bool:
    """Whether a mask has this leading dimension: (B, T, S) has items, (B, H, T, S) both."""
    return x.dim() == 4 or (x.dim() == 3 and dim == 0 and is_bool)


def _cut_added(x: Tensor, dim: int, cut: Any) -> Tensor:
    if x.dim() == 3:  # (H, T, S)
        return cut(x, 0) if dim == 1 else x
    return cut(x, dim) if x.dim() == 4 else x


def _wrap(output: Tensor, spread: Spread, shape: tuple[int, ...]) -> Tensor:
    """A rank's output as a DTensor that is spread as q is."""
    from torch.distributed.tensor import DTensor  # noqa: PLC0415 (slow to import)

    stride, n = [], 1
    for size in reversed(shape):
        stride.append(n)
        n *= max(size, 1)
    whole: Tensor = DTensor.from_local(
        output,
        spread.mesh,
        spread.placements,
        run_check=False,
        shape=torch.Size(shape),
        stride=tuple(reversed(stride)),
    )
    return whole
