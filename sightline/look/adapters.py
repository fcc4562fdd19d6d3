"""How each attention kernel is read: what it is called with, where its log-sum-exp is, what its mask says.

An adapter takes the arguments of an operator by name, and its result, and gives an :class:`AttentionCall`.
Kernels of other packages are known by the name of their operator, so the package need not be there.

==================================================  ==========================================================
``aten::_scaled_dot_product_*``                      torch's ``F.scaled_dot_product_attention``
``flex_attention``                                   torch's FlexAttention: its functions on tiles of scores
``aten::_flash_attention_forward``,                  flash-attn, xformers, ``torch.nn.attention.varlen_attn``:
``flash_attn::*``, ``xformers_flash::*``, ...        (B, T, H, D), or packed sequences with their offsets
``aten::_efficient_attention_forward``               xformers' ``memory_efficient_attention``
``aten::_transformer_encoder_layer_fwd``,            torch's whole-layer operators of eval mode: q and k as
``aten::_native_multi_head_attention``               heard inside, or projected once more
==================================================  ==========================================================
"""

import functools
import itertools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention.masks import Band, Mask, causal
from sightline.look.backward_record import BackwardRecord
from sightline.look.fused import FUSED, fused_call
from sightline.look.score_inputs import ScoreInputs, ScoreModifier, StoredRows
from sightline.shapes import Bool, Float

__all__ = [
    "NAMES",
    "AttentionCall",
    "UnreadableError",
    "adapter_of",
    "hub_kernels",
    "read_compiled_flex",
    "stored_call",
]


class UnreadableError(Exception):
    """An attention that can't be read, and why."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionCall:
    """One call of attention, read.

    Attributes:
        inputs: What its weights are made of.
        lead: Its leading dimensions.
        lse: The log-sum-exp that the kernel has given, if it has.
        source: How it was read: ``kernel``, ``flex`` or ``weights``.
        child: The child of the running module that it belongs to, where the operator is a whole layer.
        backward: What the backward pass will tell of it, where the graph is kept.
    """

    inputs: ScoreInputs
    lead: tuple[int, ...]
    lse: Float[Tensor, "B H T"] | None = None
    source: str = "kernel"
    child: str = ""
    backward: BackwardRecord | None = None

    def with_sink(self, sink: Float[Tensor, " H"] | None) -> "AttentionCall":
        """The same with scores beside those of the keys, as Hugging Face adds them to FlexAttention."""
        if sink is None or self.source != "flex" or sink.numel() != self.inputs.shape[1]:
            return self
        beside = sink.detach().to(self.inputs.dtype).reshape(1, -1, 1)
        return replace(self, inputs=replace(self.inputs, sink=beside))

    def with_padding(self, padding: Bool[Tensor, "B T"] | None) -> "AttentionCall":
        """The same, with these queries known to be padding; stored weights of theirs become zeros."""
        if padding is None:
            return self
        inputs = self.inputs
        if isinstance(inputs, StoredRows):
            if padding.shape != (inputs.shape[0], inputs.shape[2]):
                return self
            stored = StoredRows.of(inputs.q.masked_fill(padding[:, None, :, None], 0.0))
            return replace(self, inputs=replace(stored, padding=padding.unsqueeze(1)))
        return replace(self, inputs=replace(inputs, padding=padding.unsqueeze(1)))


Adapter = Callable[[dict[str, Any], Any], AttentionCall]


@functools.cache
def adapter_of(func: Any) -> Adapter | None:
    """The adapter for an operator; None if it is no attention."""
    if func in FUSED:
        return _read_sdpa
    name = _operator_name(func)
    if name == "flex_attention":
        return _read_flex
    if _is_hub_kernel(name):
        return _read_flash
    return _BY_NAME.get(name)


def _operator_name(func: Any) -> str:
    schema = getattr(func, "_schema", None)
    if schema is not None:
        return str(schema.name)
    name = getattr(func, "name", "")  # a higher-order operator
    return str(name() if callable(name) else name)


def _read_sdpa(arguments: dict[str, Any], result: Any) -> AttentionCall:
    """One of torch's four; (B, H, T, D)."""
    call = fused_call(arguments, result)
    return _call(call.q, call.k, call.mask, call.scale, call.lse)


def _call(
    q: Tensor,
    k: Tensor,
    mask: Mask,
    scale: float,
    lse: Tensor | None,
    *,
    modify: Callable[..., Tensor] | None = None,
    padding: Bool[Tensor, "B 1 T"] | None = None,
    source: str = "kernel",
    child: str = "",
    sink: Float[Tensor, " H"] | None = None,
) -> AttentionCall:
    b, h = q.shape[:2]
    if k.size(0) != b:  # keys that all items share
        k = k.expand(b, -1, -1, -1)
    lead = (b, h)
    mask = mask.fitted(lead, q.size(2), k.size(2)) if mask.limits else mask
    change = None if modify is None else ScoreModifier(modify, tuple(range(b)), tuple(range(h)))
    beside = None if sink is None else sink.detach().reshape(1, h, 1)
    inputs = ScoreInputs(q, k, mask, scale, modify=change, padding=padding, sink=beside)
    return AttentionCall(inputs=inputs, lead=lead, lse=lse, source=source, child=child)


# FlexAttention


def _read_flex(arguments: dict[str, Any], result: Any) -> AttentionCall:
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

    def looks_at_itself(b: Tensor, h: Tensor, i: Tensor) -> Tensor:
        function, unused = mask_mod, (None,) * len(mask_buffers)
        for dims in ((None, None, 0, 0), (None, 0, None, None), (0, None, None, None)):
            function = torch.vmap(function, in_dims=(*dims, *unused))
        own: Tensor = function(b, h, i, i, *mask_buffers)
        return own

    def modify(scores: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if score_mod is not None:
            over = _over_positions(score_mod, score_buffers, first=True)
            scores = over(scores, b, h, i, j, *score_buffers).to(scores.dtype)
        if mask_mod is None:
            return scores
        allowed = _over_positions(mask_mod, mask_buffers, first=False)(b, h, i, j, *mask_buffers)
        return scores.masked_fill(~allowed, -torch.inf)

    call = _call(q, k, Mask(), scale, lse, modify=modify, source="flex")
    assert call.inputs.modify is not None  # noqa: S101
    change = replace(call.inputs.modify, looks_at_itself=None if mask_mod is None else looks_at_itself)
    return replace(call, inputs=replace(call.inputs, modify=change))


def _over_positions(function: Any, buffers: tuple[Any, ...], *, first: bool) -> Any:
    """A function of one score and its four positions, over a whole tile of them."""
    score = (0,) if first else ()
    unused = (None,) * len(buffers)
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        function = torch.vmap(function, in_dims=(*score, *dims, *unused))
    return function


# flash-attn's layout: (B, T, H, D), or (total, H, D) with the offsets of the sequences

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


def _is_hub_kernel(name: str) -> bool:
    namespace, _, kernel = name.partition("::")
    return kernel in _HUB_KERNELS and _HUB_NAMESPACE.fullmatch(namespace) is not None


def _read_flash(arguments: dict[str, Any], result: Any) -> AttentionCall:
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
        return _call(q, k, mask, scale, _checked_lse(lse, q), modify=modify, sink=given.get("sink"))
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
    return _call(q4, k4, mask, scale, lse4, modify=modify, padding=padding, sink=given.get("sink"))


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


def _read_efficient(arguments: dict[str, Any], result: Any) -> AttentionCall:
    """The kernel under xformers: (B, T, H, D)."""
    if arguments.get("cu_seqlens_q") is not None:
        kind = arguments.get("custom_mask_type")
        return _read_flash(arguments | {"is_causal": kind in (1, 2), "window_size": None}, result)
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
    return _call(q, k, mask, scale, _checked_lse(result[1], q))


# Torch's whole-layer operators


# What a listener has heard inside such an operator: its queries and keys, or the kernel that it calls.
HEADS, KERNEL = "heads inside", "kernel inside"
LAYERS = frozenset({"aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention"})


def _read_layer(arguments: dict[str, Any], result: Any) -> AttentionCall:  # noqa: ARG001
    """``_transformer_encoder_layer_fwd``: a norm may come first."""
    known = _read_parts(arguments, arguments["src"], child="self_attn")
    if known is not None:
        return known
    x, padding = _dense(arguments["src"])
    if arguments["norm_first"]:
        weight, bias = arguments["norm_weight_1"], arguments["norm_bias_1"]
        x = F.layer_norm(x, (x.size(-1),), weight, bias, arguments["eps"])
    return _projected(arguments, x, arguments["num_heads"], padding, child="self_attn")


def _read_mha(arguments: dict[str, Any], result: Any) -> AttentionCall:  # noqa: ARG001
    known = _read_parts(arguments, arguments["query"])
    if known is not None:
        return known
    x, padding = _dense(arguments["query"])
    return _projected(arguments, x, arguments["num_head"], padding)


def _read_parts(arguments: dict[str, Any], x: Tensor, child: str = "") -> AttentionCall | None:
    """The call, from what was heard inside the operator; None if that is not enough."""
    if KERNEL in arguments:
        return replace(_read_sdpa(*arguments[KERNEL]), child=child)
    if HEADS not in arguments or x.is_nested:
        return None
    q, k = arguments[HEADS]  # q has been scaled
    return _call(q, k, _layer_mask(arguments), 1.0, None, child=child)


def _layer_mask(arguments: dict[str, Any]) -> Mask:
    """Torch's mask of a whole layer, True or not zero where a query may not look."""
    forbidden = arguments.get("mask")
    if forbidden is None:
        return Mask()
    allowed = ~(forbidden if forbidden.dtype == torch.bool else forbidden != 0)
    return Mask(allowed=(allowed[:, None, None] if arguments.get("mask_type") == 1 else allowed,))


def _projected(
    arguments: dict[str, Any],
    x: Float[Tensor, "B T E"],
    n_heads: int,
    padding: Bool[Tensor, "B 1 T"] | None,
    child: str = "",
) -> AttentionCall:
    e = x.size(-1)
    weight, bias = arguments["qkv_weight"], arguments["qkv_bias"]
    q, k = (
        F.linear(x, weight[i * e : (i + 1) * e], bias[i * e : (i + 1) * e])
        .unflatten(-1, (n_heads, -1))
        .transpose(1, 2)
        for i in range(2)
    )
    mask = _layer_mask(arguments)
    if padding is not None:
        mask = mask & Mask(allowed=(~padding.unsqueeze(2),))
    return _call(q, k, mask, q.size(-1) ** -0.5, None, padding=padding, child=child)


def _dense(x: Tensor) -> tuple[Tensor, Bool[Tensor, "B 1 T"] | None]:
    """A nested tensor as a padded one, and where it is padding."""
    if not x.is_nested:
        return x, None
    lengths = torch.tensor([part.size(0) for part in x.unbind()], device=x.device)
    dense = torch.nested.to_padded_tensor(x, 0.0)
    return dense, (torch.arange(dense.size(1), device=x.device) >= lengths[:, None]).unsqueeze(1)


def stored_call(
    weights: Float[Tensor, "... T S"], lse: Float[Tensor, "... T"], heads: int | None
) -> AttentionCall:
    """Weights that a model has computed itself.

    Args:
        weights: Any leading dimensions; one alone may hold batch and heads.
        lse: The log-sum-exp of their scores.
        heads: How many heads the module has, if it says so.
    """
    lead = tuple(weights.shape[:-2])
    if len(lead) == 1 and heads and lead[0] % heads == 0:
        lead = (lead[0] // heads, heads)
    split = max(len(lead) - 1, 1)
    four = (math.prod(lead[:split]), math.prod(lead[split:]))
    stored = StoredRows.of(weights.reshape(*four, *weights.shape[-2:]))
    return AttentionCall(inputs=stored, lead=lead, lse=lse.reshape(*four, lse.size(-1)), source="weights")


_BY_NAME: dict[str, Adapter] = {
    "aten::_flash_attention_forward": _read_flash,
    "aten::_efficient_attention_forward": _read_efficient,
    "aten::_transformer_encoder_layer_fwd": _read_layer,
    "aten::_native_multi_head_attention": _read_mha,
    "torch_attn::_varlen_attn": _read_flash,
    "flash_attn::_flash_attn_forward": _read_flash,
    "flash_attn::_flash_attn_varlen_forward": _read_flash,
    "flash_attn_3::_flash_attn_forward": _read_flash,
    "xformers_flash::flash_fwd": _read_flash,
    "xformers_flash3::flash_fwd": _read_flash,
}
NAMES = tuple(_BY_NAME)
