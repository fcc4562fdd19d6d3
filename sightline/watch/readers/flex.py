"""FlexAttention as it is read: its functions, of one score each, are evaluated on tiles of scores."""

import math
from typing import Any

import torch
from torch import Tensor

from sightline.attention.masks import Mask
from sightline.watch.attention_call import AttentionCall, kernel_call

__all__ = ["read_compiled_flex", "read_flex"]


def read_flex(arguments: dict[str, Any], result: Any) -> AttentionCall:
    """A call of the operator; its functions may have buffers of their own."""
    q, k = arguments["query"], arguments["key"]
    mods = arguments["score_mod"], arguments["block_mask"][-1]
    buffers = (
        tuple(arguments.get("score_mod_other_buffers") or ()),
        tuple(arguments.get("mask_mod_other_buffers") or ()),
    )
    lse = result[1] if isinstance(result, tuple) and len(result) > 1 else None
    if lse is not None:
        lse = lse * math.log(2) if lse.numel() else None  # the kernel's is to the base two
    return _flex_call(q, k, arguments["scale"], lse, mods, buffers)


def read_compiled_flex(q: Tensor, k: Tensor, options: dict[str, Any], result: Any) -> AttentionCall:
    """A call of ``flex_attention`` by its Python name, which ran compiled."""
    scale, block_mask = options.get("scale"), options.get("block_mask")
    mods = options.get("score_mod"), None if block_mask is None else block_mask.mask_mod
    aux = result[1] if isinstance(result, tuple) else None
    lse = getattr(aux, "lse", aux)
    return _flex_call(q, k, q.size(-1) ** -0.5 if scale is None else scale, lse, mods, ((), ()))


def _flex_call(
    q: Tensor,
    k: Tensor,
    scale: float,
    lse: Tensor | None,
    mods: tuple[Any, Any],
    buffers: tuple[tuple[Any, ...], tuple[Any, ...]],
) -> AttentionCall:
    (score_mod, mask_mod), (score_buffers, mask_buffers) = mods, buffers

    def modify(scores: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if score_mod is not None:
            over = _over_positions(score_mod, score_buffers, first=True)
            scores = over(scores, b, h, i, j, *score_buffers).to(scores.dtype)
        if mask_mod is None:
            return scores
        allowed = _over_positions(mask_mod, mask_buffers, first=False)(b, h, i, j, *mask_buffers)
        return scores.masked_fill(~allowed, -torch.inf)

    return kernel_call(q, k, Mask(), scale, lse, modify=modify, source="flex")


def _over_positions(function: Any, buffers: tuple[Any, ...], *, first: bool) -> Any:
    """A function of one score and its four positions, over a whole tile of them."""
    score = (0,) if first else ()
    unused = (None,) * len(buffers)
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        function = torch.vmap(function, in_dims=(*score, *dims, *unused))
    return function
