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
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention.masks import Mask
from sightline.shapes import Bool, Float
from sightline.watch.attention_call import AttentionCall, UnreadableError, kernel_call, stored_call
from sightline.watch.readers.flash import hub_kernels, is_hub_kernel, read_efficient, read_flash
from sightline.watch.readers.flex import read_compiled_flex, read_flex
from sightline.watch.readers.operators import FUSED, fused_call

__all__ = [
    "NAMES",
    "AttentionCall",
    "UnreadableError",
    "adapter_of",
    "hub_kernels",
    "read_compiled_flex",
    "stored_call",
]

Adapter = Callable[[dict[str, Any], Any], AttentionCall]


@functools.cache
def adapter_of(func: Any) -> Adapter | None:
    """The adapter for an operator; None if it is no attention."""
    if func in FUSED:
        return _read_sdpa
    name = _operator_name(func)
    if name == "flex_attention":
        return read_flex
    if is_hub_kernel(name):
        return read_flash
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
    return kernel_call(call.q, call.k, call.mask, call.scale, call.lse)


# Torch's whole-layer operators


# What a listener has heard inside such an operator: its queries and keys, or the kernel that it calls.
HEADS, KERNEL = "heads inside", "kernel inside"
LAYERS = frozenset({"aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention"})


def _read_layer(arguments: dict[str, Any], result: Any) -> AttentionCall:  # noqa: ARG001
    """``_transformer_encoder_layer_fwd``: a norm may come first."""
    known = _read_parts(arguments, arguments["src"])
    if known is not None:
        return known
    x, padding = _dense(arguments["src"])
    if arguments["norm_first"]:
        weight, bias = arguments["norm_weight_1"], arguments["norm_bias_1"]
        x = F.layer_norm(x, (x.size(-1),), weight, bias, arguments["eps"])
    return _projected(arguments, x, arguments["num_heads"], padding)


def _read_mha(arguments: dict[str, Any], result: Any) -> AttentionCall:  # noqa: ARG001
    known = _read_parts(arguments, arguments["query"])
    if known is not None:
        return known
    x, padding = _dense(arguments["query"])
    return _projected(arguments, x, arguments["num_head"], padding)


def _read_parts(arguments: dict[str, Any], x: Tensor) -> AttentionCall | None:
    """The call, from what was heard inside the operator; None if that is not enough."""
    if KERNEL in arguments:
        return _read_sdpa(*arguments[KERNEL])
    if HEADS not in arguments or x.is_nested:
        return None
    q, k = arguments[HEADS]  # q has been scaled
    return kernel_call(q, k, _layer_mask(arguments), 1.0, None)


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
    return kernel_call(q, k, mask, q.size(-1) ** -0.5, None, padding=padding)


def _dense(x: Tensor) -> tuple[Tensor, Bool[Tensor, "B 1 T"] | None]:
    """A nested tensor as a padded one, and where it is padding."""
    if not x.is_nested:
        return x, None
    lengths = torch.tensor([part.size(0) for part in x.unbind()], device=x.device)
    dense = torch.nested.to_padded_tensor(x, 0.0)
    return dense, (torch.arange(dense.size(1), device=x.device) >= lengths[:, None]).unsqueeze(1)


_BY_NAME: dict[str, Adapter] = {
    "aten::_flash_attention_forward": read_flash,
    "aten::_efficient_attention_forward": read_efficient,
    "aten::_transformer_encoder_layer_fwd": _read_layer,
    "aten::_native_multi_head_attention": _read_mha,
    "torch_attn::_varlen_attn": read_flash,
    "flash_attn::_flash_attn_forward": read_flash,
    "flash_attn::_flash_attn_varlen_forward": read_flash,
    "flash_attn_3::_flash_attn_forward": read_flash,
    "xformers_flash::flash_fwd": read_flash,
    "xformers_flash3::flash_fwd": read_flash,
}
NAMES = tuple(_BY_NAME)
