"""``look``: attention, and what it attended to."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sightline.attention import scores
from sightline.attention.attend import attention, four_dimensional, is_causal
from sightline.attention.masks import Mask, as_mask
from sightline.attention.scores import Score
from sightline.look.inputs import ScoreInputs
from sightline.look.sight import Look, Sight, check_measure, measure_sight
from sightline.messages import check_bool
from sightline.shapes import Float, Shaped, are_plain, autocasting, is_grouped, leading
from sightline.watch.catch import call_kernel, run_with_lse

__all__ = ["look"]

_EVERYTHING = Look()
_SCALED_DOT = scores.ScaledDot()
_NO_MASK = Mask()


def look(
    q: Float[Tensor, "... T Dq"],
    k: Float[Tensor, "... S Dk"],
    v: Float[Tensor, "... S Dv"],
    mask: Shaped[Tensor, "..."] | Mask | None = None,
    *,
    measure: Look = _EVERYTHING,
    score: Score | str | None = None,
    scale: float | None = None,
    keep: bool = True,
    group: Any = None,
) -> Sight:
    """Attend as :func:`sightline.attention` does, and see where the weights went, in O(T + S) memory.

    Args:
        q, k, v, mask, score, scale: Those of :func:`sightline.attention`.
        measure: What to measure. Default: received, entropy and peak.
        keep: Hold on to q and k, so that maps, rows and tops can be had later. They are not copied: it
            costs what q and k take, once nobody else needs them.
        group: A process group whose ranks have the queries, keys and values of one sequence between them,
            each its own part of T and S, rank after rank; the mask is that of the whole. Every rank calls.
            DTensors, spread over batch, heads or tokens, need none.

    Returns:
        A :class:`Sight`, whose ``output`` is bit for bit that of ``sl.attention``. Its lse, entropy, peak
        and received are differentiable.

    Example:
        >>> q = k = v = 9 * torch.eye(3)[None, None]                # each query matches one key
        >>> sight = look(q, k, v)
        >>> sight.peak_at
        tensor([[[0, 1, 2]]])
        >>> sight.rows([1]).round(decimals=2)
        tensor([[[[0., 1., 0.]]]])
    """
    check_measure(measure)
    check_bool("keep", keep)
    if group is not None:
        from sightline.look.sharded.look import look_in_group  # noqa: PLC0415 (it is rare)

        return look_in_group(q, k, v, mask, group=group, measure=measure, score=score, scale=scale, keep=keep)
    if not type(q) is type(k) is type(v) is Tensor and any(type(x).__name__ == "DTensor" for x in (q, k, v)):
        from sightline.look.sharded.look import look_at_dtensors  # noqa: PLC0415

        return look_at_dtensors(q, k, v, mask, measure=measure, score=score, scale=scale, keep=keep)
    output, lses = _attend(q, k, v, mask, score, scale)
    mask = _NO_MASK if mask is None else as_mask(mask)
    inputs, lead = make_score_inputs(q, k, v, mask, scale, score)
    return measure_sight(inputs, measure, lead=lead, lse=captured_lse(lses, inputs), output=output, keep=keep)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Any, score: Score | str | None, scale: float | None
) -> tuple[Tensor, list[Tensor | None]]:
    """What :func:`sightline.attention` gives, and the log-sum-exps of the kernels that it is made of."""
    if score is None and scale is None and are_plain(q, k, v) and (mask is None or is_causal(mask, q, k)):
        known = call_kernel(q, k, v, is_causal=mask is not None)  # as attention would, without a detour
        if known is not None:
            return known[0], [known[1]]
    return run_with_lse(lambda: attention(q, k, v, mask, score=score, scale=scale))


def make_score_inputs(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float | None = None, score: Score | str | None = None
) -> tuple[ScoreInputs, tuple[int, ...]]:
    """What the weights of an attention are made of, and the leading dimensions it was asked with."""
    shape, keys = q.shape, k.shape
    if mask.added:  # the kernel rounds it likewise
        mask = replace(mask, added=tuple(x.to(q.dtype) for x in mask.added))
    if (  # nothing has to be done to them; short inputs feel every step
        score is None
        and len(shape) == len(keys) == v.dim() == 4
        and shape[0] == keys[0] == v.size(0)
        and shape[1] == keys[1] == v.size(1)
        and shape[3] == keys[3] > 0
        and not autocasting(q)
    ):
        lead: tuple[int, ...] = (shape[0], shape[1])
        if mask is not _NO_MASK and mask.limits:
            mask = mask.fitted(lead, shape[2], keys[2])
        return ScoreInputs(q, k, mask, 1 / math.sqrt(shape[3]) if scale is None else scale), lead
    lead = leading(q, k, v)
    matched = _SCALED_DOT if score is None else scores.named(score)
    dot = matched.as_dot(q, k)
    if dot is None:
        if is_grouped(q, k, v):
            k, v = (x.repeat_interleave(q.size(1) // k.size(1), 1) for x in (k, v))
        own_scale = 1.0
    else:
        q, k, own_scale = dot
        if autocasting(q):
            q, k = _autocast(q), _autocast(k)
            mask = replace(mask, added=tuple(map(_autocast, mask.added)))
    t, s = q.size(-2), k.size(-2)
    q4, k4, _, mask4 = four_dimensional(q, k, v, mask.fitted(lead, t, s), lead)
    if scale is None:
        scale = own_scale
    elif score is not None:
        scale = own_scale * scale
    return ScoreInputs(q4, k4, mask4, scale, matched if dot is None else None), lead


def _autocast(x: Tensor) -> Tensor:
    """Round as the kernel's inputs are rounded inside ``torch.autocast``."""
    return x if x.dtype == torch.float64 else x.to(torch.get_autocast_dtype(x.device.type))


def captured_lse(lses: list[Tensor | None], inputs: ScoreInputs) -> Tensor | None:
    """The kernel's lse of all queries, if every block of them went through one that gave it."""
    if len(lses) == 1:
        lse = lses[0]
        return None if lse is None or lse.size(-1) != inputs.q.size(2) else lse
    parts = [lse for lse in lses if lse is not None]
    if not parts or len(parts) != len(lses) or sum([x.size(-1) for x in parts]) != inputs.q.size(2):
        return None
    return torch.cat(parts, dim=-1)
