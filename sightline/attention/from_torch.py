"""The border with ``torch.nn.MultiheadAttention``: its calls, masks and heads, in our terms."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention.masks import Mask
from sightline.shapes import Float, autocasting, is_tensor


class Scriptable:
    """Lets ``torch.jit.script`` take a drop-in: as the torch class it stands for, parameters and all."""

    def __prepare_scriptable__(self) -> object:
        """What to compile in our place."""
        kind: Any = next(c for c in type(self).__mro__ if c.__module__.startswith("torch.nn"))
        twin = kind.__new__(kind)
        twin.__dict__.update(self.__dict__)
        modules = self.__dict__["_modules"]  # the compiler would replace them in place, in ours too
        twin.__dict__["_modules"] = {name: _unshared(module) for name, module in modules.items()}
        return twin


def _unshared(module: Any) -> Any:
    """A module with a table of submodules of its own, all the way down."""
    if module is None or isinstance(module, Scriptable):
        return module
    twin = copy.copy(module)
    twin.__dict__["_modules"] = {name: _unshared(m) for name, m in module._modules.items()}  # noqa: SLF001
    return twin


def fits(
    module: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
) -> bool:
    """Whether dense inputs and masks agree in rank, length, batch and width, and the module with itself."""
    if query.is_nested or key.is_nested or value.is_nested:
        return False
    if not query.dim() == key.dim() == value.dim() or query.dim() not in (2, 3):
        return False
    widths = (query.size(-1), key.size(-1), value.size(-1))
    if widths != (module.embed_dim, module.kdim, module.vdim) or key.shape[:-1] != value.shape[:-1]:
        return False
    bias: Tensor | None = module.in_proj_bias
    if bias is not None and bias.dtype != module.out_proj.weight.dtype:  # half a module was converted
        return False
    batched = query.dim() == 3
    length = 1 if batched and module.batch_first else 0
    t, s = query.size(length), key.size(length)
    batch = query.size(1 - length) if batched else 1
    if batched and key.size(1 - length) != batch:
        return False
    return _is_mask(key_padding_mask, (batch, s) if batched else (s,)) and _is_mask(
        attn_mask, (t, s), (batch * module.num_heads, t, s)
    )


def check_torch_mask(mask: object, name: str) -> None:
    """Refuse what is no mask of torch's kind."""
    if isinstance(mask, Tensor) and (mask.dtype == torch.bool or mask.is_floating_point()):
        return
    if isinstance(mask, Mask):
        raise TypeError(f"{name} must be a torch.Tensor, got a Mask; ~mask.dense(T, S) makes one")
    is_tensor(mask, name)
    raise TypeError(
        f"{name} must be boolean (as in torch, True = may not look) or float (added to the scores), got "
        f"{getattr(mask, 'dtype', None)}; {name} == 0 hides the zeros, {name} == 1 the ones"
    )


def mask_from_torch(attn_mask: Tensor | None, key_padding_mask: Tensor | None, n_heads: int) -> Mask:
    """Turn torch's masks, in which True means *may not look*, into a Mask for ``(B, H, T, S)``."""
    masks = []
    if attn_mask is not None:  # (T, S) or (B * H, T, S)
        masks.append(attn_mask if attn_mask.dim() == 2 else attn_mask.unflatten(0, (-1, n_heads)))
    if key_padding_mask is not None:  # (B, S) or (S,)
        rows = key_padding_mask if key_padding_mask.dim() == 2 else key_padding_mask[None]
        masks.append(rows[None, None].permute(2, 0, 1, 3))  # (B, 1, 1, S), strides as kernels want them
    return Mask(
        allowed=tuple(~mask for mask in masks if mask.dtype == torch.bool),
        added=tuple(mask for mask in masks if mask.dtype != torch.bool),
    )


def heads(
    module: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor, mask: Mask
) -> tuple[Float[Tensor, "B H T D"], Float[Tensor, "B H S D"], Float[Tensor, "B H S D"], Mask]:
    """Queries, keys and values of each head, as the module makes them of its inputs.

    Also the mask, which must let all see the keys that the module appends.
    """
    q, k, v = _project(module, query, key, value)  # (B, T or S, H, D), in the order of the inputs
    if query.dim() == 2:
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    elif module.batch_first:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    else:
        q, k, v = q.permute(1, 2, 0, 3), k.permute(1, 2, 0, 3), v.permute(1, 2, 0, 3)
    if module.bias_k is not None and module.bias_v is not None:
        (
            last_k,
            last_v,
        ) = (  # autocast, which has cast k and v, does not concatenate every kind of half precision
            x.to(k.dtype).view(1, module.num_heads, 1, module.head_dim).expand(k.size(0), -1, -1, -1)
            for x in (module.bias_k, module.bias_v)
        )
        k, v = torch.cat([k, last_k], dim=2), torch.cat([v, last_v], dim=2)
        mask = _with_one_more_key(mask)
    if module.add_zero_attn:
        k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
        mask = _with_one_more_key(mask)
    return q, k, v, mask


def _is_mask(mask: Tensor | None, *shapes: tuple[int, ...]) -> bool:
    if mask is None:
        return True
    return tuple(mask.shape) in shapes and (mask.dtype == torch.bool or mask.is_floating_point())


def _project(
    module: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Map the inputs to queries, keys and values of every head, with as few products as they allow."""
    weight: Tensor | None = module.in_proj_weight
    bias: Tensor | None = module.in_proj_bias
    e, each = module.embed_dim, (module.num_heads, module.head_dim)
    if weight is not None and query is key and key is value:
        q, k, v = F.linear(query, weight, bias).unflatten(-1, (3, *each)).unbind(-3)
        return q, k, v
    if weight is not None and key is value:
        if autocasting(query) and weight.dtype == torch.float32:  # which would cast both parts, one by one
            half = torch.get_autocast_dtype(query.device.type)
            weight, bias = weight.to(half), None if bias is None else bias.to(half)
        w_q, w_kv = weight.split((e, 2 * e))
        b_q, b_kv = (None, None) if bias is None else bias.split((e, 2 * e))
        k, v = F.linear(key, w_kv, b_kv).unflatten(-1, (2, *each)).unbind(-3)
        return F.linear(query, w_q, b_q).unflatten(-1, each), k, v
    weights: tuple[Tensor, ...] = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    if weight is not None:
        weights = weight.split(e)
    biases = (None, None, None) if bias is None else bias.split(e)
    q, k, v = map(F.linear, (query, key, value), weights, biases)
    return q.unflatten(-1, each), k.unflatten(-1, each), v.unflatten(-1, each)


def _with_one_more_key(mask: Mask) -> Mask:
    """Let every query look at a key that was appended."""
    return Mask(
        mask.bands,
        mask.lengths,
        tuple(F.pad(x, (0, 1), value=True) for x in mask.allowed),
        tuple(F.pad(x, (0, 1)) for x in mask.added),
    )
