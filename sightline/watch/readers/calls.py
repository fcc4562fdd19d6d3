"""Calls of attention, read from their arguments so that they can be made again."""

from typing import Any, NamedTuple

from torch import Tensor

from sightline.attention.masks import Mask, as_mask, causal
from sightline.attention.scores import Score

__all__ = ["Call", "read_attention_call", "read_sdpa_call"]

_SDPA = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_OURS = ("q", "k", "v", "mask")


class Call(NamedTuple):
    """The arguments of one attention."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask
    score: Score | str | None
    scale: float | None
    dropout_p: float


def read_sdpa_call(args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Call:
    """Read a call of ``F.scaled_dot_product_attention``.

    Args:
        args, kwargs: Those of the call.
        name: The module that calls, for sentences.
    """
    arguments = dict(zip(_SDPA, args, strict=False)) | kwargs
    q, k, v, attn_mask = arguments["query"], arguments["key"], arguments["value"], arguments.get("attn_mask")
    if q.is_nested:
        raise ValueError(
            f"{name or 'the model itself'} attends with nested tensors, which can't be edited; pad them"
        )
    if arguments.get("enable_gqa") and q.dim() != 4:
        k, v = (x.repeat_interleave(q.size(-3) // x.size(-3), -3) for x in (k, v))
    mask = Mask()
    if attn_mask is not None and type(attn_mask).__name__ == "CausalBias":  # its module takes long to import
        mask = causal(align="end" if attn_mask.variant.name == "LOWER_RIGHT" else "start")
    elif attn_mask is not None:
        rank = max(q.dim(), k.dim(), attn_mask.dim())
        attn_mask = attn_mask.reshape((1,) * (rank - attn_mask.dim()) + tuple(attn_mask.shape))
        mask = Mask(added=(attn_mask,)) if attn_mask.is_floating_point() else Mask(allowed=(attn_mask,))
    if arguments.get("is_causal"):
        mask &= causal(align="start")
    return Call(q, k, v, mask, None, arguments.get("scale"), arguments.get("dropout_p", 0.0))


def read_attention_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Read a call of ``sl.attention``."""
    arguments = dict(zip(_OURS, args, strict=False)) | kwargs
    mask = as_mask(arguments.get("mask"))
    options = arguments.get("score"), arguments.get("scale"), arguments.get("dropout_p", 0.0)
    return Call(arguments["q"], arguments["k"], arguments["v"], mask, *options)
