"""What an attention was called with, as what its weights are made of."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from sightline.attention import scores
from sightline.attention.attend import four_dimensional
from sightline.attention.masks import Mask
from sightline.attention.scores import Score
from sightline.look.inputs import ScoreInputs
from sightline.shapes import autocasting, is_grouped, leading

__all__ = ["NO_MASK", "captured_lse", "make_score_inputs"]

NO_MASK = Mask()
_SCALED_DOT = scores.ScaledDot()


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
        if mask is not NO_MASK and mask.limits:
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
