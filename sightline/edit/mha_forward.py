"""``nn.MultiheadAttention`` through ``sl.attention``: torch's own forward hides its call of attention."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from sightline.attention.attend import attention
from sightline.attention.from_torch import fits, heads, mask_from_torch
from sightline.attention.masks import causal


class _SlowPath:
    """How many blocks need torch's fast path off, and what it was before the first of them."""

    lock = threading.Lock()
    n_open = 0
    was_fast = True


@contextlib.contextmanager
def slow_path() -> Iterator[bool]:
    """Turn torch's fast path off, for the process, until the last block ends; gives what it was before."""
    with _SlowPath.lock:
        if not _SlowPath.n_open:
            _SlowPath.was_fast = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
        _SlowPath.n_open += 1
    try:
        yield _SlowPath.was_fast
    finally:
        with _SlowPath.lock:
            _SlowPath.n_open -= 1
            if not _SlowPath.n_open:
                torch.backends.mha.set_fastpath_enabled(_SlowPath.was_fast)


def send_through_attention(module: nn.MultiheadAttention, undo: contextlib.ExitStack) -> None:
    """Give a module a forward that calls ``sl.attention`` exactly once.

    Args:
        module: Torch's or ours, whose forward is the class's own.
        undo: Gets what is to be undone.
    """
    own = module.__dict__.get("forward")
    inherited = type(module).forward

    def forward(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Any:
        if not fits(module, query, key, value, key_padding_mask, attn_mask):  # torch says what is wrong
            return inherited(
                module,
                query,
                key,
                value,
                key_padding_mask,
                need_weights,
                attn_mask,
                average_attn_weights,
                is_causal,
            )
        hint = is_causal and key_padding_mask is None and not need_weights  # then torch ignores attn_mask
        mask = (
            causal(align="start") if hint else mask_from_torch(attn_mask, key_padding_mask, module.num_heads)
        )
        q, k, v, mask = heads(module, query, key, value, mask)  # (B, H, T or S, D)
        if need_weights:  # attention to the identity gives the weights
            eye = torch.eye(k.size(2), dtype=v.dtype, device=v.device)
            v = torch.cat([v, eye.expand(*v.shape[:2], -1, -1)], dim=-1)
        context = attention(q, k, v, mask, dropout_p=module.dropout if module.training else 0.0)
        weights = None
        if need_weights:
            context, weights = context.split((context.size(-1) - k.size(2), k.size(2)), dim=-1)
            weights = weights.mean(1) if average_attn_weights else weights
        if query.dim() == 2:
            context, weights = context[0], None if weights is None else weights[0]
            return module.out_proj(context.transpose(0, 1).flatten(1)), weights
        output = module.out_proj(context.transpose(1, 2).flatten(2))
        return output if module.batch_first else output.transpose(0, 1), weights

    module.forward = forward  # type: ignore[method-assign]

    def restore() -> None:
        if own is None:
            module.__dict__.pop("forward", None)
        else:
            module.__dict__["forward"] = own

    undo.callback(restore)
