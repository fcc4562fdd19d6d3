"""How far what was seen is from the weights that a model computes itself: padded, step by step, in bfloat16.

Which oracle is right in bfloat16? A fused kernel takes q and k in bfloat16 and softens in float32, so its
weights are those of a softmax in float64 over the same q and k. Eager attention rounds the scores to bfloat16
before the softmax and its weights after it; what is seen are the weights that it multiplies the values with,
so they are compared with those that it returns.
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

SAME = 1e-3  # outputs that are further apart are another model's
PROMPT = 4  # tokens that are read at once before the steps


def set_attention(model: Any, implementation: str) -> None:
    """Choose how a model of Hugging Face's attends."""
    if hasattr(model, "set_attn_implementation"):
        try:
            model.set_attn_implementation(implementation)
        except ValueError:  # a part has no such path, as the convolutions of DETR
            for part in model.children():
                set_attention(part, implementation)
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
        found = [x for x in (*crossed, *own) if x is not None]
        return found if all(((x >= 0) & (x <= 1)).all() for x in found) else []  # SqueezeBERT returns scores
    decoding = zip(out["decoder_attentions"], out["cross_attentions"], strict=True)
    return [*out["encoder_attentions"], *(x for pair in decoding for x in pair)]


def difference(sights: list[sl.Sight], weights: list[Tensor], real: Tensor | None = None) -> float | None:
    """The largest difference of any weight, of queries that are real; None where the model returns not all.

    Models that read images return the weights of their text alone, which comes last.

    Args:
        sights: What was seen.
        weights: What the model returns.
        real: Which tokens are no padding; (B, T).
    """
    if not sights or not weights or len(weights) > len(sights):
        return None
    errors = [0.0]
    for sight, expected in zip(sights[-len(weights) :], weights, strict=True):
        rows, truth = sight.rows(range(sight.t)), expected.to(torch.float64)
        if rows.shape != truth.shape:
            return None
        if torch.equal(truth[:, :1].expand_as(truth), truth):  # averaged over the heads
            rows = rows.mean(1, keepdim=True)
        apart = (rows - truth).abs()
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


def output_of(outputs: Any) -> Tensor:
    """The tensor that a model's output is compared by."""
    if isinstance(outputs, Tensor):
        return outputs
    if isinstance(outputs, tuple):
        return outputs[0]
    for name in ("last_hidden_state", "logits", "logits_per_text"):
        if outputs.get(name) is not None:
            return outputs[name]
    raise ValueError(f"no output is known among {list(outputs)}")


def own_error(model: Any, inputs: dict[str, Any], blind: Tensor, sights: list[sl.Sight]) -> float | None:
    """The largest difference of any weight from those that the model returns with eager attention.

    Where the model itself gives another output with eager attention, its q and k are others too. Then the
    kernel's weights are compared with a softmax in float64 over the same q and k.
    """
    implementation = getattr(getattr(model, "config", None), "_attn_implementation", "")
    weights = eager_weights(model, inputs)
    torch.manual_seed(1)
    if implementation != "eager" and (output_of(model(**inputs)) - blind).abs().max() > SAME:
        set_attention(model, implementation)
        with fused_weights() as weights:
            torch.manual_seed(1)
            model(**inputs)
    return difference(sights, weights)


def cached_error(model: Any, inputs: dict[str, Any], implementation: str) -> float | None:
    """The steps of a loop with a cache, put together, against all tokens at once; None if it keeps none."""
    ids = inputs.get("input_ids")
    if ids is None or len(inputs) > 1 or not hasattr(model, "set_attn_implementation"):
        return None
    with torch.no_grad():
        weights = eager_weights(model, inputs)
        set_attention(model, implementation)
        whole = output_of(model(**inputs))
        try:
            cache = model(ids[:, :PROMPT], use_cache=True).get("past_key_values")
        except TypeError:
            cache = None
        if cache is None:
            return None
        with sl.watch(model, keep=True) as seen:
            cache = model(ids[:, :PROMPT], use_cache=True)["past_key_values"]
            for i in range(PROMPT, ids.size(1)):
                out = model(ids[:, i : i + 1], use_cache=True, past_key_values=cache)
                cache = out["past_key_values"]
    if (output_of(out) - whole[:, -1:]).abs().max() > SAME:  # the model itself is another one step by step
        return None
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
        if isinstance(model, sl.nn.MultiheadAttention):
            return difference(sights, [projected_weights(model, half["query"])])
        if any(x.source != "weights" for x in sights):  # more exact than what the model returns
            return None
        return difference(sights, eager_weights(model, half))


def half_statistics(model: Any, inputs: dict[str, Any]) -> dict[str, list[float]]:
    """Of the first layer in bfloat16, how far entropy, received and peak are from three truths.

    They are: seen in eager attention, from what that returns; seen in the kernel, from what eager attention
    returns; what eager attention returns, from float64 over the same q and k.
    """
    model = model.bfloat16()
    with torch.no_grad():
        returned = statistics(eager_weights(model, inputs)[0])
        seen = {}
        for implementation in ("eager", "sdpa"):
            set_attention(model, implementation)
            with fused_weights() as exact, sl.watch(model) as sights:
                model(**inputs)
            first = sights.calls(sights.names()[0])[0]
            seen[implementation] = {name: getattr(first, name) for name in returned}
        truth = statistics(exact[0])
    pairs = (seen["eager"], returned), (seen["sdpa"], returned), (returned, truth)
    return {name: [(a[name] - b[name]).abs().max().item() for a, b in pairs] for name in returned}


def statistics(weights: Tensor) -> dict[str, Tensor]:
    """What is measured of weights, in float64."""
    weights = weights.double()
    entropy = -torch.special.xlogy(weights, weights).sum(-1)
    return {"entropy": entropy, "received": weights.sum(-2), "peak": weights.amax(-1)}


def projected_weights(module: nn.MultiheadAttention, x: Tensor) -> Tensor:
    """The weights of self-attention in float64, over the q and k of the module's own dtype."""
    both = F.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, -1)[:2]
    q, k = (y.unflatten(-1, (module.num_heads, -1)).transpose(1, 2) for y in both)
    return softmax(q, k, None)


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
