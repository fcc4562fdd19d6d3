"""Attention modules: one head, several heads, and torch's ``MultiheadAttention``, drop-in.

MultiHead(X) = Concat(head_1, ..., head_h) Wᴼ        head_i = Attention(X Wq_i, X Wk_i, X Wv_i)
"""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import has_torch_function_unary

from sightline.attention.attend import attention
from sightline.attention.averaged import attention_with_average, attention_with_weights
from sightline.attention.from_torch import Scriptable, check_torch_mask, fits, heads, mask_from_torch
from sightline.attention.mask_values import warn_if_binary, warn_of_hidden_rows, warn_of_padding
from sightline.attention.masks import Mask, causal
from sightline.messages import check_bool, check_integer
from sightline.shapes import Float, Shaped, are_cast, autocasting, is_tensor
from sightline.untrusted import check_memory

__all__ = ["MultiHeadSelfAttention", "MultiheadAttention", "SelfAttention"]


class SelfAttention(nn.Module):
    """One head: every position of a sequence looks at every other.

        Q = X Wq,  K = X Wk,  V = X Wv        output = softmax(Q Kᵀ / √d_k) V

    Without positions it is permutation-equivariant: shuffle the input and the output is shuffled alike.

    Args:
        d_in: Width of the input.
        d_k, d_v: Widths of the queries and keys, and of the values and the output.
        bias: Whether the projections add one.

    Example:
        >>> SelfAttention(d_in=32, d_k=512, d_v=64)(torch.ones(20, 5, 32)).shape
        torch.Size([20, 5, 64])
    """

    def __init__(self, d_in: int, d_k: int, d_v: int, *, bias: bool = True) -> None:
        super().__init__()
        _check_widths(d_in, d_k, d_v)
        check_bool("bias", bias)
        check_memory(4 * d_in * (2 * d_k + d_v), "SelfAttention", "choose smaller widths")
        self.Wq = nn.Linear(d_in, d_k, bias=bias)
        self.Wk = nn.Linear(d_in, d_k, bias=bias)
        self.Wv = nn.Linear(d_in, d_v, bias=bias)

    def forward(
        self, x: Float[Tensor, "... T d_in"], mask: Shaped[Tensor, "..."] | Mask | None = None
    ) -> Float[Tensor, "... T d_v"]:
        """Mix the sequence with itself; ``mask`` is that of :func:`sightline.attention`."""
        return attention(*self.project(x), mask)

    def project(self, x: Float[Tensor, "... T d_in"]) -> tuple[Tensor, Tensor, Tensor]:
        """What each position looks for, what it offers, and what it hands over."""
        is_tensor(x, "x")
        d_in, dtype = self.Wq.in_features, self.Wq.weight.dtype
        if x.dim() < 2 or x.size(-1) != d_in:
            raise ValueError(f"x must be (..., T, d_in) with d_in={d_in}, got x {tuple(x.shape)}")
        if x.device != self.Wq.weight.device:
            raise ValueError(
                f"x must be on the device of the weights, {self.Wq.weight.device}, got {x.device}; "
                "x.to(module.Wq.weight.device) does it"
            )
        if x.dtype != dtype and not are_cast(x, self.Wq.weight):
            raise TypeError(
                f"x must have the dtype of the weights, {dtype}, got {x.dtype}; x.to({dtype}) does it"
            )
        return self.Wq(x), self.Wk(x), self.Wv(x)


class MultiHeadSelfAttention(nn.Module):
    """Several heads side by side, each with its own small projections, joined by ``Wo``.

    Args:
        d_in: Width of the input.
        d_k: Width of the queries and keys of all heads together; each has ``d_k / num_heads``.
        d_v: Width of the values of all heads together, and of the output.
        num_heads: Number of heads; it must divide ``d_k`` and ``d_v``.
        bias: Whether the projections add one.
        n_heads: The former name of ``num_heads``, for one more release.

    Example:
        >>> MultiHeadSelfAttention(d_in=256, d_k=512, d_v=64, num_heads=8)(torch.rand(32, 10, 256)).shape
        torch.Size([32, 10, 64])
    """

    def __init__(
        self,
        d_in: int,
        d_k: int,
        d_v: int,
        num_heads: int | None = None,
        *,
        bias: bool = True,
        n_heads: int | None = None,
    ) -> None:
        super().__init__()
        _check_widths(d_in, d_k, d_v)
        check_bool("bias", bias)
        h = _num_heads(num_heads, n_heads)
        if h < 1 or d_k % h or d_v % h:
            raise ValueError(
                f"num_heads must divide d_k and d_v, got num_heads={h} for d_k={d_k} and d_v={d_v}; "
                "each head takes an equal share of both"
            )
        check_memory(
            4 * (d_v * d_v + d_in * (2 * d_k + d_v)), "MultiHeadSelfAttention", "choose smaller widths"
        )
        self.Wo = nn.Linear(d_v, d_v, bias=bias)
        heads = [SelfAttention(d_in, d_k // h, d_v // h, bias=bias) for _ in range(h)]
        self.heads: Sequence[SelfAttention] = nn.ModuleList(heads)  # type: ignore[assignment]

    def forward(
        self, x: Float[Tensor, "... T d_in"], mask: Shaped[Tensor, "..."] | Mask | None = None
    ) -> Float[Tensor, "... T d_v"]:
        """Attend with every head at once and join the results.

        A mask is shared by all heads: ``(T, S)``, ``(B, 1, S)``, ``(B, T, S)``, or one with a dimension for
        the heads. Three dimensions are those of the input's items, whatever the number of heads.
        """
        projected = zip(*(head.project(x) for head in self.heads), strict=True)
        q, k, v = (torch.stack(heads, dim=-3) for heads in projected)  # (..., H, T, d_k / H) and d_v / H
        if isinstance(mask, Tensor) and mask.dim() == 3 and x.dim() == 3:
            mask = mask.unsqueeze(1)
        context = attention(q, k, v, mask)  # (..., H, T, d_v / H)
        return self.Wo(context.transpose(-3, -2).flatten(-2))


def _num_heads(num_heads: Any, n_heads: Any) -> int:
    """The number of heads, by its name or by its former one."""
    if n_heads is not None and num_heads is None:
        warnings.warn("n_heads is num_heads now, as in torch", DeprecationWarning, stacklevel=3)
        return int(n_heads)
    if n_heads is not None:
        raise TypeError(
            f"num_heads and n_heads, its former name, are the same thing, got num_heads={num_heads} and "
            f"n_heads={n_heads}; give num_heads alone"
        )
    if num_heads is None:
        raise TypeError(
            "MultiHeadSelfAttention needs num_heads, a divisor of d_k and d_v, got none; num_heads=8 is usual"
        )
    check_integer("num_heads", num_heads)
    return int(num_heads)


def _check_widths(d_in: int, d_k: int, d_v: int) -> None:
    for name, width in (("d_in", d_in), ("d_k", d_k), ("d_v", d_v)):
        check_integer(name, width, at_least=1)


class MultiheadAttention(Scriptable, nn.MultiheadAttention):
    """``torch.nn.MultiheadAttention``: its arguments, parameters, checkpoints and results.

    The constructor is torch's own. What differs is how ``forward`` gets there:

    - the fused kernel is reached with every mask, and a causal mask builds no T x S tensor;
    - ``need_weights=True`` averages the heads' weights tile by tile, without a ``(B, H, T, S)`` tensor;
    - a query that may look at nothing gets zeros (torch: NaN with weights);
    - on a CPU, eval takes the same steps as training. On a GPU it takes torch's fused inference kernel,
      as torch does, while ``torch.backends.mha.get_fastpath_enabled()``.

    Example:
        >>> ours, theirs = MultiheadAttention(8, 2), nn.MultiheadAttention(8, 2)
        >>> ours.load_state_dict(theirs.state_dict())
        <All keys matched successfully>
        >>> x = torch.randn(5, 3, 8)                              # T, B, E
        >>> torch.allclose(ours(x, x, x)[0], theirs(x, x, x)[0], atol=1e-6)
        True
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from ``query`` to ``key`` and ``value``; see :class:`torch.nn.MultiheadAttention`.

        Mind torch's polarity here: in a boolean ``attn_mask`` or ``key_padding_mask`` True means *may not*.
        A mask that hides all keys of a row, padding at the beginning of every row, or a float mask of ones
        and zeros, is warned of.
        """
        if attn_mask is not None:
            check_torch_mask(attn_mask, "attn_mask")
            warn_of_hidden_rows(attn_mask, "attn_mask")
            warn_if_binary(attn_mask, "attn_mask")
        if key_padding_mask is not None:
            check_torch_mask(key_padding_mask, "key_padding_mask")
            warn_of_padding(key_padding_mask, "key_padding_mask")
            warn_if_binary(key_padding_mask, "key_padding_mask")
        has_kernel = self._has_inference_kernel(query, key, value, key_padding_mask, attn_mask, need_weights)
        if has_kernel and not is_causal and self._is_plain(query):
            return self._infer(query, need_weights=need_weights, average=average_attn_weights)
        if (
            has_kernel
            or not fits(self, query, key, value, key_padding_mask, attn_mask)  # torch says what is wrong
            or (is_causal and attn_mask is None)
            or (self.training and self.dropout == 1.0)  # all is dropped, which the fused kernel won't do
        ):
            return super().forward(
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )
        hint = is_causal and key_padding_mask is None and not need_weights  # then torch ignores attn_mask
        mask = causal(align="start") if hint else mask_from_torch(attn_mask, key_padding_mask, self.num_heads)
        q, k, v, mask = heads(self, query, key, value, mask)  # (B, H, T or S, D)
        dropout_p = self.dropout if self.training else 0.0
        weights = None
        if not need_weights:
            context = attention(q, k, v, mask, dropout_p=dropout_p)
        elif average_attn_weights:
            context, weights = attention_with_average(q, k, v, mask, dropout_p)  # weights (B, T, S)
        else:
            context, weights = attention_with_weights(q, k, v, mask, dropout_p)  # weights (B, H, T, S)
        if query.dim() == 2:
            context, weights = context[0], None if weights is None else weights[0]
            return self.out_proj(context.transpose(0, 1).flatten(1)), weights
        if self.batch_first and not (self.training and self.dropout > 0):
            return self.out_proj(context.transpose(1, 2).flatten(2)), weights
        # (T, B, E) is torch's order in memory, and so of what is dropped next
        output = self.out_proj(context.permute(2, 0, 1, 3).contiguous().flatten(2))
        return output.transpose(0, 1) if self.batch_first else output, weights

    def _infer(self, x: Tensor, *, need_weights: bool, average: bool) -> tuple[Tensor, Tensor | None]:
        """Torch's operator for a whole module; torch gets there too, with more questions."""
        found: tuple[Tensor, Tensor | None] = torch._native_multi_head_attention(  # noqa: SLF001
            x, x, x, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias,
            self.out_proj.weight, self.out_proj.bias, None, need_weights, average,
        )  # fmt: skip
        return found

    def _is_plain(self, query: Tensor) -> bool:
        """Whether torch's operator takes the module as it is, in a torch without modes."""
        bias: Any = self.in_proj_bias
        return (
            self._qkv_same_embed_dim
            and bias is not None
            and self.bias_k is None
            and not self.add_zero_attn
            and self.num_heads % 2 == 0
            and query.size(2) == self.embed_dim
            and type(query) is Tensor
            and not query.is_nested
            and query.dtype == self.in_proj_weight.dtype == bias.dtype
            and not has_torch_function_unary(self.in_proj_weight)  # nor a mode of torch's
            and not autocasting(query)
            and not torch.compiler.is_compiling()
            and torch._C._get_tracing_state() is None  # noqa: SLF001
            and not torch._C._len_torch_dispatch_stack()  # noqa: SLF001
        )

    def _has_inference_kernel(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
        need_weights: bool,
    ) -> bool:
        """Whether torch runs this whole module as one operator, and on a GPU saves most of the launches."""
        return (
            not self.training
            and query.is_cuda
            and query is key
            and key is value
            and attn_mask is None
            and key_padding_mask is None
            and query.dim() == 3
            and self.batch_first
            and not torch.is_grad_enabled()
            and torch.backends.mha.get_fastpath_enabled()
            # that operator stores the weights of all heads: fine while they are small
            and not (need_weights and self.num_heads * query.size(0) * query.size(1) ** 2 > 1 << 26)
        )
