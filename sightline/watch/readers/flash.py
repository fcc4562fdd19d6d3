"""flash-attn and its kind: (B, T, H, D), or (total, H, D) with the offsets of the sequences."""

import functools
import itertools
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sightline.attention.band import Band
from sightline.attention.masks import Mask, causal
from sightline.watch.attention_call import AttentionCall, UnreadableError, kernel_call

__all__ = ["hub_kernels", "is_hub_kernel", "read_efficient", "read_flash"]

_ALIASES = {
    "query": "q",
    "key": "k",
    "value": "v",
    "softmax_scale": "scale",
    "causal": "is_causal",
    "cum_seq_q": "cu_seqlens_q",
    "cum_seq_k": "cu_seqlens_k",
    "cu_seq_q": "cu_seqlens_q",
    "cu_seq_k": "cu_seqlens_k",
    "window_left": "window_size_left",
    "window_right": "window_size_right",
    "block_tables": "block_table",
    "page_table": "block_table",
    "s_aux": "sink",
    "learnable_sink": "sink",
}


# Kernels from a hub have a name of their own build: _vllm_flash_attn3_6f4e9c::fwd
_HUB_NAMESPACE = re.compile(r"_?(vllm_)?flash_attn\w*")
_HUB_KERNELS = ("fwd", "varlen_fwd")


def hub_kernels() -> list[str]:
    """The names of the kernels from a hub that have been loaded so far."""
    names = _hub_namespaces(tuple(torch.ops))
    return [f"{name}::{x}" for name in names for x in _HUB_KERNELS if hasattr(getattr(torch.ops, name), x)]


@functools.lru_cache(8)
def _hub_namespaces(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if _HUB_NAMESPACE.fullmatch(name))


def is_hub_kernel(name: str) -> bool:
    """Whether an operator is called like one of a hub's."""
    namespace, _, kernel = name.partition("::")
    return kernel in _HUB_KERNELS and _HUB_NAMESPACE.fullmatch(namespace) is not None


def read_flash(arguments: dict[str, Any], result: Any) -> AttentionCall:
    """A call of any of them, whatever it calls its arguments."""
    plain = {name.rstrip("_"): value for name, value in arguments.items()}
    given = {_ALIASES.get(name, name): value for name, value in plain.items()}
    if given.get("block_table") is not None or given.get("leftpad_k") is not None:
        raise UnreadableError("its keys lie in the pages of a cache, which a look does not follow")
    q, k, scale = given["q"], given["k"], given.get("scale")
    scale = q.size(-1) ** -0.5 if scale is None else scale
    mask = Mask(bands=_bands(given))
    modify = _modifier(given)
    lse = result[1] if isinstance(result, tuple | list) and len(result) > 1 else None
    if given.get("cu_seqlens_q") is None:
        if given.get("seqused_k") is not None:
            mask = mask & Mask(lengths=(given["seqused_k"],))
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        return kernel_call(q, k, mask, scale, _checked_lse(lse, q), modify=modify, sink=given.get("sink"))
    return _packed(given, q, k, mask, scale, lse, modify)


def _bands(given: dict[str, Any]) -> tuple[Band, ...]:
    """The window of a call, at the end of the keys: -1 or None is no limit."""
    left, right = given.get("window_size_left"), given.get("window_size_right")
    if given.get("window_size") is not None:
        left, right = given["window_size"]
    left = None if left is None or left < 0 else int(left)
    right = None if right is None or right < 0 else int(right)
    right = 0 if given.get("is_causal") else right
    return () if left is None and right is None else (Band(left, right, "end"),)


def _modifier(given: dict[str, Any]) -> Callable[..., Tensor] | None:
    """A soft cap and ALiBi's slopes, as one change of the scores."""
    cap, slopes = float(given.get("softcap") or 0.0), given.get("alibi_slopes")
    if not cap and slopes is None:
        return None
    if slopes is not None and given.get("cu_seqlens_q") is not None:
        raise UnreadableError("ALiBi over packed sequences is not read")
    s_minus_t = given["k"].size(1) - given["q"].size(1)

    def modify(scores: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        scores = (scores / cap).tanh_().mul_(cap) if cap else scores
        if slopes is None:
            return scores
        slope = slopes[h] if slopes.dim() == 1 else slopes[b][:, h]
        apart = (i[:, None] + s_minus_t - j).abs()
        return scores - slope[..., None, None] * apart

    return modify


def _checked_lse(lse: Any, q: Tensor) -> Tensor | None:
    """A log-sum-exp of (B, H, T), which some kernels pad."""
    if not isinstance(lse, Tensor) or lse.dim() != 3 or lse.shape[:2] != q.shape[:2]:
        return None
    return lse[..., : q.size(2)] if lse.size(2) >= q.size(2) else None


def _packed(
    given: dict[str, Any],
    q: Tensor,
    k: Tensor,
    mask: Mask,
    scale: float,
    lse: Any,
    modify: Callable[..., Tensor] | None,
) -> AttentionCall:
    """Sequences one after the other in (total, H, D), put into a batch of their own."""
    if q.dim() == 4:  # xformers' has a batch of one around it
        q, k = q[0], k[0]
    starts = given["cu_seqlens_q"].tolist()
    key_starts = starts if given.get("cu_seqlens_k") is None else given["cu_seqlens_k"].tolist()
    lengths, key_lengths = ([b - a for a, b in itertools.pairwise(x)] for x in (starts, key_starts))
    if given.get("seqused_k") is not None:
        key_lengths = given["seqused_k"].tolist()
    if mask.bands and lengths != key_lengths:
        mask = _aligned_bands(mask.bands[0], lengths, key_lengths, q.device)
    q4, k4 = _pad(q, starts, lengths), _pad(k, key_starts, key_lengths)
    positions = torch.arange(max(lengths), device=q.device)
    padding = (positions >= torch.tensor(lengths, device=q.device)[:, None]).unsqueeze(1)
    mask = mask & Mask(lengths=(torch.tensor(key_lengths, device=q.device),))
    lse4 = None
    if isinstance(lse, Tensor) and lse.dim() == 2 and lse.shape == (q.size(1), q.size(0)):
        lse4 = _pad(lse.T.unsqueeze(-1), starts, lengths).squeeze(-1)
    return kernel_call(q4, k4, mask, scale, lse4, modify=modify, padding=padding, sink=given.get("sink"))


def _pad(x: Tensor, starts: list[int], lengths: list[int]) -> Tensor:
    """(total, H, D) as (B, H, longest, D), zeros after the end of each sequence."""
    out = x.new_zeros(len(lengths), max(lengths), *x.shape[1:])
    for i, (start, length) in enumerate(zip(starts, lengths, strict=False)):
        out[i, :length] = x[start : start + length]
    return out.transpose(1, 2)


def _aligned_bands(band: Band, lengths: list[int], key_lengths: list[int], device: torch.device) -> Mask:
    """A band that lies at the end of each sequence, where their lengths differ."""
    t, s = max(lengths), max(key_lengths)
    shift = torch.tensor([b - a for a, b in zip(lengths, key_lengths, strict=True)], device=device)
    ahead = torch.arange(s, device=device) - torch.arange(t, device=device)[:, None] - shift[:, None, None]
    allowed = torch.ones_like(ahead, dtype=torch.bool)
    if band.left is not None:
        allowed &= ahead >= -band.left
    if band.right is not None:
        allowed &= ahead <= band.right
    return Mask(allowed=(allowed.unsqueeze(1),))


def read_efficient(arguments: dict[str, Any], result: Any) -> AttentionCall:
    """The kernel under xformers: (B, T, H, D)."""
    if arguments.get("cu_seqlens_q") is not None:
        kind = arguments.get("custom_mask_type")
        return read_flash(arguments | {"is_causal": kind in (1, 2), "window_size": None}, result)
    q, k = arguments["query"].transpose(1, 2), arguments["key"].transpose(1, 2)
    mask = {0: Mask(), 1: causal(align="start"), 2: causal()}[arguments.get("custom_mask_type") or 0]
    if arguments.get("window_size"):
        mask = mask & Mask(bands=(Band(int(arguments["window_size"]) - 1, None, "end"),))
    if arguments.get("bias") is not None:
        mask = mask & Mask(added=(arguments["bias"],))
    if arguments.get("seqlen_k") is not None:
        mask = mask & Mask(lengths=(arguments["seqlen_k"],))
    scale = arguments.get("scale")
    scale = q.size(-1) ** -0.5 if scale is None else scale
    return kernel_call(q, k, mask, scale, _checked_lse(result[1], q))
