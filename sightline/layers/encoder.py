"""The encoder: self-attention over all positions, then a feed-forward layer; N times."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention.from_torch import Scriptable
from sightline.attention.multihead import MultiheadAttention
from sightline.layers.parts import activation_of, is_causal_mask, sequence_length

__all__ = ["TransformerEncoder", "TransformerEncoderLayer"]


class TransformerEncoderLayer(Scriptable, nn.TransformerEncoderLayer):
    """``torch.nn.TransformerEncoderLayer``: its arguments, parameters, checkpoints and results.

        x = norm1(x + attend(x))        x = norm2(x + feedforward(x))

    or, with ``norm_first``, the same with each norm at the entrance of its branch.

    Example:
        >>> layer = TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
        >>> layer(torch.randn(3, 5, 8)).shape                      # B, T, E
        torch.Size([3, 5, 8])
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        nn.Module.__init__(self)  # torch's would build torch's attention
        factory = {"bias": bias, "device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, **factory)
        self.linear1 = nn.Linear(d_model, dim_feedforward, **factory)
        self.dropout = nn.Dropout(dropout)
        self.linear2 = nn.Linear(dim_feedforward, d_model, **factory)
        self.norm_first = norm_first
        self.norm1 = nn.LayerNorm(d_model, eps=layer_norm_eps, **factory)
        self.norm2 = nn.LayerNorm(d_model, eps=layer_norm_eps, **factory)
        self.dropout1 = nn.Dropout(dropout)
        self.dropout2 = nn.Dropout(dropout)
        self.activation, self.activation_relu_or_gelu = activation_of(activation)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Pass a sequence through the layer; see :class:`torch.nn.TransformerEncoderLayer`."""
        if src.is_nested or self._has_inference_kernel(src, src_mask, src_key_padding_mask):
            return super().forward(src, src_mask, src_key_padding_mask, is_causal)
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            x = x + self._ff_block(self.norm2(x))
        else:
            x = self.norm1(x + self._sa_block(x, src_mask, src_key_padding_mask, is_causal))
            x = self.norm2(x + self._ff_block(x))
        return x

    def _sa_block(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        """Self-attention, with its dropout. Named as in torch, where subclasses override it."""
        context, _ = self.self_attn(
            x,
            x,
            x,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            need_weights=False,
            is_causal=is_causal,
        )
        return self.dropout1(context)

    def _ff_block(self, x: Tensor) -> Tensor:
        """The feed-forward layer of each position, with its dropout."""
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def _has_inference_kernel(self, src: Tensor, mask: Tensor | None, padding: Tensor | None) -> bool:
        """Whether torch may run the whole layer as one operator, and on a GPU save most of the launches."""
        return (
            src.is_cuda
            and mask is None
            and padding is None
            and type(self.self_attn) is MultiheadAttention  # not one that rotates, say
            and not self.training
            and not torch.is_grad_enabled()
            and torch.backends.mha.get_fastpath_enabled()
        )


class TransformerEncoder(Scriptable, nn.TransformerEncoder):
    """``torch.nn.TransformerEncoder``: a stack of layers that start out alike.

    The constructor is torch's own, its warnings about nested tensors included.

    Example:
        >>> layer = TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
        >>> TransformerEncoder(layer, num_layers=2)(torch.randn(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """Pass a sequence through all layers; see :class:`torch.nn.TransformerEncoder`.

        As in torch, in eval without autograd the outputs at padding come out as zeros when the padding is
        at the end and ``enable_nested_tensor`` is on.
        """
        if src.is_nested:
            return super().forward(src, mask, src_key_padding_mask, is_causal)
        if is_causal is None:
            is_causal = is_causal_mask(mask, sequence_length(src, self.layers[0]))
        x = src
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=is_causal, src_key_padding_mask=src_key_padding_mask)
        if src_key_padding_mask is not None and self._clears_padding(src, mask, src_key_padding_mask):
            x = x.masked_fill(src_key_padding_mask.bool().unsqueeze(-1), 0.0)
        return x if self.norm is None else self.norm(x)

    def _clears_padding(self, src: Tensor, mask: Tensor | None, padding: Tensor) -> bool:
        """Whether torch would drop the padded positions and fill them with zeros at the end."""
        if mask is not None or src.dim() != 3 or not self.use_nested_tensor:
            return False
        if self.layers[0].training or torch.is_autocast_enabled():
            return False
        if not torch.backends.mha.get_fastpath_enabled() or torch.compiler.is_compiling():
            return False
        if torch.is_grad_enabled() and (
            src.requires_grad or any(p.requires_grad for p in self.layers[0].parameters())
        ):
            return False
        real = ~padding if padding.dtype == torch.bool else padding == 0
        return not self.mask_check or bool((real[:, :-1] >= real[:, 1:]).all())
