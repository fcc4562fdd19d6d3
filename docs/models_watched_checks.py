"""How far what was seen is from the weights that a model computes itself: padded, step by step, in bfloat16.

Which oracle is right in bfloat16? A fused kernel takes q and k in bfloat16 and softens in float32, so its
weights are those of a softmax in float64 over the same q and k. Eager attention rounds the scores to bfloat16
before the softmax and its weights after it; what is seen is its softmax before that second rounding, so it is
compared with what eager returns, to half of bfloat16's last digit.
"""

# ruff: noqa: INP001

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sightline as sl

PROMPT = 4  # tokens that are read at once before the steps


def set_attention(model: Any, implementation: str) -> None:
    """Choose how a model of Hugging Face's attends."""
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation(implementation)
    for part in model.modules():  # some hold copies of the configuration
        if getattr(part, "config", None) is not None:
            part.config._attn_implementation = implementation  # noqa: SLF001


def eager_weights(model: Any, inputs: dict[str, Any]) -> list[Tensor]:
    """The matrices that the model returns itself, in the order of its calls."""
    torch.manual_seed(1)
    if isinstance(model, nn.MultiheadAttention):
        return [model(**inputs | {"need_weights": True, "average_attn_weights": False})[1]]
    if not hasattr(model, "set_attn_implementation"):
        return []
    set_attention(model, "eager")
    out = model(**inputs, output_attentions=True)
    if out.get("decoder_attentions") is None:
        own, crossed = out.get("attentions") or (), out.get("cross_attentions") or ()
        return [x for x in (*crossed, *own) if x is not None]
    decoding = zip(out["decoder_attentions"], out["cross_attentions"], strict=True)
    return [*out["encoder_attentions"], *(x for pair in decoding for x in pair)]


def difference(
    sights: list[sl.Sight], weights: list[Tensor], real: Tensor | None = None, *, relative: bool = False
) -> float | None:
    """The largest difference of any weight, of queries that are real; None where the model returns not all.

    Args:
        sights: What was seen.
        weights: What the model returns.
        real: Which tokens are no padding; (B, T).
        relative: Divide by the weight, where it is larger than 0.01.
    """
    if not sights or len(weights) != len(sights):
        return None
    errors = [0.0]
    for sight, expected in zip(sights, weights, strict=True):
        rows, truth = sight.rows(range(sight.t)), expected.to(torch.float64)
        if rows.shape != truth.shape:
            return None
        if torch.equal(truth[:, :1].expand_as(truth), truth):  # averaged over the heads
            rows = rows.mean(1, keepdim=True)
        apart = (rows - truth).abs()
        if relative:
            apart = torch.where(truth > 0.01, apart / truth, 0.0)
        if real is not None and real.shape == (apart.size(0), apart.size(2)):
            apart = apart * real[:, None, :, None]
        errors.append(apart.max().item())
    return max(errors)


def padded_error(model: Any, inputs: dict[str, Any], implementation: str) -> float | None:
    """The same with padding, on the right and on the left; of fused calls against the same q and k."""
    ids = inputs.get("input_ids")
    if ids is None or "pixel_values" in inputs or not hasattr(model, "set_attn_implementation"):
        return None
    errors = []
    for side in ("right", "left"):
        real = torch.arange(ids.size(1)) < torch.tensor([[ids.size(1)], [ids.size(1) - 3]])
        real = real if side == "right" else real.flip(-1)
        padded = inputs | {"attention_mask": real.long()}
        set_attention(model, implementation)
        with torch.no_grad(), fused_weights() as fused, sl.watch(model, keep=True) as seen:
            torch.manual_seed(1)
            model(**padded)
        sights = [x for _, calls in seen.items() for x in calls]
        with torch.no_grad():
            weights = fused if len(fused) == len(sights) else eager_weights(model, padded)
        error = difference(sights, weights, real)
        if error is None:
            return None
        errors.append(error)
    return max(errors)


def cached_error(model: Any, inputs: dict[str, Any], implementation: str) -> float | None:
    """The steps of a loop with a cache, put together, against all tokens at once; None if it keeps none."""
    ids = inputs.get("input_ids")
    if ids is None or len(inputs) > 1 or not hasattr(model, "set_attn_implementation"):
        return None
    with torch.no_grad():
        weights = eager_weights(model, inputs)
        set_attention(model, implementation)
        try:
            cache = model(ids[:, :PROMPT], use_cache=True).get("past_key_values")
        except TypeError:
            cache = None
        if cache is None:
            return None
        with sl.watch(model, keep=True) as seen:
            cache = model(ids[:, :PROMPT], use_cache=True)["past_key_values"]
            for i in range(PROMPT, ids.size(1)):
                cache = model(ids[:, i : i + 1], use_cache=True, past_key_values=cache)["past_key_values"]
    return difference([run for name in seen for run in seen.runs(name)], weights)


def half_error(model: Any, inputs: dict[str, Any], implementation: str) -> float | None:
    """The same in bfloat16: of a fused call against float64, of eager attention against what it returns."""
    half = {
        k: x.bfloat16() if x.is_floating_point() else x for k, x in inputs.items() if isinstance(x, Tensor)
    }
    half = inputs | half
    model = model.bfloat16()
    set_attention(model, implementation)
    try:
        with torch.no_grad():
            model(**half)
    except (RuntimeError, ValueError):  # the model itself has no such path on this machine
        return None
    with torch.no_grad(), fused_weights() as weights:
        set_attention(model, implementation)
        with sl.watch(model, keep=True) as seen:
            torch.manual_seed(1)
            model(**half)
        sights = [x for _, calls in seen.items() for x in calls]
        if len(weights) == len(sights):
            return difference(sights, weights)
        if any(x.source != "weights" for x in sights):  # more exact than what the model returns
            return None
        return difference(sights, eager_weights(model, half), relative=True)


@contextlib.contextmanager
def fused_weights() -> Iterator[list[Tensor]]:
    """What the calls of ``F.scaled_dot_product_attention`` weigh, in float64 from the same q and k."""
    plain, found = F.scaled_dot_product_attention, []

    def overheard(
        q: Tensor, k: Tensor, v: Tensor, attn_mask: Any = None, *args: Any, **options: Any
    ) -> Tensor:
        found.append(softmax(q, k, attn_mask, **options))
        return plain(q, k, v, attn_mask, *args, **options)

    with mock.patch.object(F, "scaled_dot_product_attention", overheard):
        yield found


def softmax(
    q: Tensor,
    k: Tensor,
    attn_mask: Tensor | None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    **_: Any,
) -> Tensor:
    """The weights of a fused call, in float64."""
    k = k.repeat_interleave(q.size(1) // k.size(1), 1)
    scores = q.double() @ k.double().mT * (q.size(-1) ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return scores.softmax(-1).nan_to_num(0.0)
