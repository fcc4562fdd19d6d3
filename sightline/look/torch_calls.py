"""Calls of attention that no fused operator tells all about, read from their arguments."""

from collections import OrderedDict
from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor, nn

from sightline.attention.from_torch import fits, heads, mask_from_torch
from sightline.attention.masks import Mask, as_mask, causal
from sightline.look.fused import FusedCall
from sightline.look.look import make_score_inputs
from sightline.look.score_inputs import ScoreInputs

_SDPA = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_OURS = ("q", "k", "v", "mask")
_MHA = (
    "query",
    "key",
    "value",
    "key_padding_mask",
    "need_weights",
    "attn_mask",
    "average_attn_weights",
    "is_causal",
)
_Module = TypeVar("_Module", bound=nn.Module)


def read_sdpa_call(args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> FusedCall | None:
    """Read a call of ``F.scaled_dot_product_attention``; None if it can't be, as with nested tensors."""
    arguments = dict(zip(_SDPA, args, strict=False)) | kwargs
    q, k, v, attn_mask = arguments["query"], arguments["key"], arguments["value"], arguments.get("attn_mask")
    if q.is_nested:
        return None
    if arguments.get("enable_gqa") and q.dim() != 4:
        k, v = (x.repeat_interleave(q.size(-3) // x.size(-3), -3) for x in (k, v))
    scale = arguments.get("scale")
    mask = Mask()
    if attn_mask is not None and type(attn_mask).__name__ == "CausalBias":  # its module takes long to import
        mask = causal(align="end" if attn_mask.variant.name == "LOWER_RIGHT" else "start")
    elif attn_mask is not None:
        rank = max(q.dim(), k.dim(), attn_mask.dim())
        attn_mask = attn_mask.reshape((1,) * (rank - attn_mask.dim()) + tuple(attn_mask.shape))
        mask = Mask(added=(attn_mask,)) if attn_mask.is_floating_point() else Mask(allowed=(attn_mask,))
    if arguments.get("is_causal"):
        mask = mask & causal(align="start")
    return FusedCall(q, k, v, mask, q.size(-1) ** -0.5 if scale is None else scale, output, None)


def read_mha_call(
    module: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
) -> FusedCall | None:
    """Read a call of ``nn.MultiheadAttention``; None if it can't be, as with nested tensors."""
    arguments: dict[str, Any] = dict.fromkeys(_MHA) | dict(zip(_MHA, args, strict=False)) | kwargs
    query, key, value = arguments["query"], arguments["key"], arguments["value"]
    masks = arguments["key_padding_mask"], arguments["attn_mask"]
    if not fits(module, query, key, value, *masks):
        return None
    mask = mask_from_torch(masks[1], masks[0], module.num_heads)
    if (
        arguments["is_causal"] and arguments["need_weights"] is False and masks[0] is None
    ):  # torch ignores attn_mask
        mask = causal(align="start")
    q, k, v, mask = heads(module, query, key, value, mask)
    return FusedCall(q, k, v, mask, q.size(-1) ** -0.5, output, None)


def read_attention_call(
    args: tuple[Any, ...], kwargs: dict[str, Any], *, kept: bool
) -> tuple[ScoreInputs, tuple[int, ...]]:
    """Read a call of ``sl.attention``: what its weights are made of, and its leading dimensions.

    Args:
        args, kwargs: Those of the call, which has been made and is right.
        kept: Whether the pairs will be asked later, when a score that learns may have learned more.
    """
    arguments = dict(zip(_OURS, args, strict=False)) | kwargs
    q, k, v, mask = arguments["q"], arguments["k"], arguments["v"], as_mask(arguments.get("mask"))
    mask = replace(mask, added=tuple(x.to(q.dtype) for x in mask.added))  # the kernel rounds it likewise
    inputs, lead = make_score_inputs(q, k, v, mask, arguments.get("scale"), arguments.get("score"))
    if inputs.score is not None:
        inputs = replace(inputs, score=_without_hooks(inputs.score, copied=kept))
    return inputs, lead


def _without_hooks(module: _Module, *, copied: bool) -> _Module:
    """The same without its hooks, which would take a look for a call; its weights copied, if asked for."""
    silent = module.__new__(type(module))
    hooks = [name for name in module.__dict__ if name.startswith(("_forward_", "_backward_"))]
    silent.__dict__ = module.__dict__ | {name: OrderedDict() for name in hooks}
    for name in ("_parameters", "_buffers"):
        detached = ((n, None if x is None else x.detach()) for n, x in module.__dict__[name].items())
        apart = copied or name == "_buffers"  # a buffer may be written to by the look
        silent.__dict__[name] = {n: x.clone() if apart and x is not None else x for n, x in detached}
    parts = {n: None if x is None else _without_hooks(x, copied=copied) for n, x in module._modules.items()}  # noqa: SLF001
    silent.__dict__["_modules"] = parts
    return silent
