"""The whole Transformer: an encoder reads the source, a decoder writes the target while looking at it."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention.from_torch import Scriptable
from sightline.layers.decoder import TransformerDecoder, TransformerDecoderLayer
from sightline.layers.encoder import TransformerEncoder, TransformerEncoderLayer

__all__ = ["Transformer"]


class Transformer(Scriptable, nn.Transformer):
    """``torch.nn.Transformer``: its arguments, parameters, checkpoints and results.

        memory = encoder(src)        output = decoder(tgt, memory)

    Example:
        >>> model = Transformer(8, 2, num_encoder_layers=1, num_decoder_layers=1, batch_first=True)
        >>> model(torch.randn(3, 7, 8), torch.randn(3, 5, 8)).shape     # B, S, E and B, T, E
        torch.Size([3, 5, 8])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu,
        custom_encoder: Any | None = None,
        custom_decoder: Any | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        nn.Module.__init__(self)  # torch's would build torch's layers
        layer = (
            d_model,
            nhead,
            dim_feedforward,
            dropout,
            activation,
            layer_norm_eps,
            batch_first,
            norm_first,
        )
        factory = {"bias": bias, "device": device, "dtype": dtype}

        def norm() -> nn.LayerNorm:
            return nn.LayerNorm(d_model, eps=layer_norm_eps, **factory)

        self.encoder = custom_encoder
        if custom_encoder is None:
            encoder_layer = TransformerEncoderLayer(*layer, **factory)
            self.encoder = TransformerEncoder(encoder_layer, num_encoder_layers, norm())
        self.decoder = custom_decoder
        if custom_decoder is None:
            decoder_layer = TransformerDecoderLayer(*layer, **factory)
            self.decoder = TransformerDecoder(decoder_layer, num_decoder_layers, norm())
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Read ``src``, write ``tgt``; see :class:`torch.nn.Transformer` for the masks."""
        batch = 0 if self.batch_first else 1
        if src.dim() == 3 and src.size(batch) != tgt.size(batch):
            raise RuntimeError(
                "the batch number of src and tgt must be equal, "
                f"got src {tuple(src.shape)} and tgt {tuple(tgt.shape)}"
            )
        if not src.size(-1) == tgt.size(-1) == self.d_model:
            raise RuntimeError(
                "the feature number of src and tgt must be equal to d_model, "
                f"got {src.size(-1)} and {tgt.size(-1)} for d_model={self.d_model}"
            )
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )
