"""The decoder: masked self-attention, cross-attention over the encoder's memory, then feed-forward."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention.from_torch import Scriptable
from sightline.attention.multihead import MultiheadAttention
from sightline.layers.parts import activation_of, is_causal_mask, sequence_length

__all__ = ["TransformerDecoder", "TransformerDecoderLayer"]


class TransformerDecoderLayer(Scriptable, nn.TransformerDecoderLayer):
    """``torch.nn.TransformerDecoderLayer``: its arguments, parameters, checkpoints and results.

        x = norm1(x + attend(x))        x = norm2(x + attend_to(memory))        x = norm3(x + feedforward(x))

    or, with ``norm_first``, the same with each norm at the entrance of its branch.

    Example:
        >>> layer = TransformerDecoderLayer(d_model=8, nhead=2, batch_first=True)
        >>> layer(torch.randn(3, 5, 8), torch.randn(3, 7, 8)).shape     # B, T, E and B, S, E
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
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, **factory)
        self.linear1 = nn.Linear(d_model, dim_feedforward, **factory)
        self.dropout = nn.Dropout(dropout)
        self.linear2 = nn.Linear(dim_feedforward, d_model, **factory)
        self.norm_first = norm_first
        self.norm1 = nn.LayerNorm(d_model, eps=layer_norm_eps, **factory)
        self.norm2 = nn.LayerNorm(d_model, eps=layer_norm_eps, **factory)
        self.norm3 = nn.LayerNorm(d_model, eps=layer_norm_eps, **factory)
        self.dropout1 = nn.Dropout(dropout)
        self.dropout2 = nn.Dropout(dropout)
        self.dropout3 = nn.Dropout(dropout)
        self.activation, _ = activation_of(activation)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Pass a sequence and the encoder's memory; see :class:`torch.nn.TransformerDecoderLayer`."""
        past = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        across = (memory_mask, memory_key_padding_mask, memory_is_causal)
        x = tgt
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *past)
            x = x + self._mha_block(self.norm2(x), memory, *across)
            x = x + self._ff_block(self.norm3(x))
        else:
            x = self.norm1(x + self._sa_block(x, *past))
            x = self.norm2(x + self._mha_block(x, memory, *across))
            x = self.norm3(x + self._ff_block(x))
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
            is_causal=is_causal,
            need_weights=False,
        )
        return self.dropout1(context)

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        """Cross-attention over the encoder's memory, with its dropout."""
        context, _ = self.multihead_attn(
            x,
            mem,
            mem,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            need_weights=False,
        )
        return self.dropout2(context)

    def _ff_block(self, x: Tensor) -> Tensor:
        """The feed-forward layer of each position, with its dropout."""
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoder(Scriptable, nn.TransformerDecoder):
    """``torch.nn.TransformerDecoder``: a stack of layers that start out alike; torch's own constructor.

    Example:
        >>> layer = TransformerDecoderLayer(d_model=8, nhead=2, batch_first=True)
        >>> TransformerDecoder(layer, num_layers=2)(torch.randn(3, 5, 8), torch.randn(3, 7, 8)).shape
        torch.Size([3, 5, 8])
    """

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Pass a sequence and the encoder's memory through all layers; see torch's."""
        if tgt_is_causal is None:
            tgt_is_causal = is_causal_mask(tgt_mask, sequence_length(tgt, self.layers[0]))
        x = tgt
        for layer in self.layers:
            x = layer(
                x,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=tgt_is_causal,
                memory_is_causal=memory_is_causal,
            )
        return x if self.norm is None else self.norm(x)
