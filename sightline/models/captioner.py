"""The captioner: an encoder turns a picture into a grid of vectors, a decoder attends to it and writes.

    model = Captioner(CaptionerConfig(vocab_size=len(tokenizer)))
    logits = model(images, ids)                        # training: ids start with BOS
    state = model.start(images, look=True)             # decoding: pictures are encoded once
    log_probs, state = model.step(state, ids)          # state.attention_weights: where it looked

Settings are in ``captioner_config.py``, the encoders in ``caption_encoders.py``, the recurrent decoder in
``recurrent_decoder.py``, and how a Transformer decoder takes one step in ``steps.py``.
"""

from collections.abc import Sequence
from typing import Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.data.tokens import PAD
from sightline.layers import TransformerDecoder, TransformerDecoderLayer
from sightline.models.caption_encoders import GridEncoder, PatchEncoder
from sightline.models.captioner_config import DECODERS, CaptionerConfig
from sightline.models.recurrent_decoder import RecurrentDecoder, RecurrentState
from sightline.models.rotary_attention import rotate_self_attention
from sightline.models.run_folder import SaveableModel
from sightline.models.steps import DecoderState, advance, begin, keys_and_values
from sightline.positions import LearnedPositions, Rotary, SinusoidalPositions
from sightline.shapes import Float, Int

__all__ = ["DECODERS", "Captioner", "CaptionerConfig", "TextDecoder"]

_ALIGNED = 8  # a GPU's products are several times slower where a row is no multiple of 16 bytes


class Captioner(SaveableModel):
    """A model from pictures to captions, with its attention weights for every word.

    Pictures come as ``sightline.data.images.normalise`` gives them, (B, 3, h, w), or, with a pretrained
    encoder, as the grids that its ``features`` gives, (B, P, C); one that was trained along has its own.

    Example:
        >>> config = CaptionerConfig(vocab_size=11, image_size=32, patch=16, d_model=8, n_heads=2, d_ff=16)
        >>> model = Captioner(config).eval()
        >>> images = torch.zeros(2, 3, 32, 32)
        >>> model(images, torch.ones(2, 5, dtype=torch.long)).shape              # B, T, V
        torch.Size([2, 5, 11])
        >>> log_probs, state = model.step(model.start(images, look=True), torch.ones(2, dtype=torch.long))
        >>> log_probs.shape, state.attention_weights.shape                             # N, V and N, H, P
        (torch.Size([2, 11]), torch.Size([2, 2, 4]))
    """

    kind = "caption"
    Config = CaptionerConfig

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = _encoder(config)
        self.decoder: TextDecoder | RecurrentDecoder
        if config.decoder == "transformer":
            self.decoder = TextDecoder(
                vocab_size=config.vocab_size,
                d_model=config.d_model,
                n_heads=config.n_heads,
                n_layers=config.n_layers,
                d_ff=config.d_ff,
                dropout=config.dropout,
                tied=config.tied,
                max_length=config.max_length,
                embedding_scale=config.embedding_scale,
                position_scale=config.position_scale,
                positions=config.positions,
            )
        else:
            self.decoder = RecurrentDecoder(
                vocab_size=config.vocab_size,
                d_model=config.d_model,
                d_hidden=config.d_hidden,
                dropout=config.dropout,
                tied=config.tied,
                pad=PAD,
            )

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the memory, for overlays: cell (r, c) is position ``r * columns + c``."""
        return self.encoder.grid

    @property
    def pretrained(self) -> list[nn.Parameter]:
        """The weights of a pretrained encoder that is fine-tuned, which has its own learning rate."""
        net = self.encoder.network if isinstance(self.encoder, GridEncoder) else None
        return [] if net is None else list(net.parameters())

    @property
    def regularised(self) -> bool:
        """Whether the loss needs the attention each cell received, for :meth:`regulariser`."""
        return self.config.decoder == "recurrent" and self.config.doubly_stochastic > 0

    def encode(self, images: Float[Tensor, "B ..."]) -> Float[Tensor, "B P C"]:
        """The memory that the decoder attends to; C is E, or with local keys 2 E."""
        return self.encoder(images)

    @overload
    def forward(self, images: Tensor, ids: Tensor, *, return_received: Literal[False] = False) -> Tensor: ...

    @overload
    def forward(
        self, images: Tensor, ids: Tensor, *, return_received: Literal[True]
    ) -> tuple[Tensor, Tensor]: ...

    def forward(
        self,
        images: Float[Tensor, "B ..."],
        ids: Int[Tensor, "B T"],
        *,
        return_received: bool = False,
    ) -> Float[Tensor, "B T V"] | tuple[Float[Tensor, "B T V"], Float[Tensor, "B P"]]:
        """The logits of the token after each of ``ids``, which start with BOS and are padded with PAD.

        Args:
            images: Pictures, or grids of a frozen encoder.
            ids: What was said so far, teacher forcing.
            return_received: Give ``(logits, received)``, the weight that each cell of the picture received,
                summed over the caption's words; with gradients. For the recurrent decoder.
        """
        memory = self.encode(images)
        if isinstance(self.decoder, RecurrentDecoder):
            logits, received = self.decoder(memory, ids)
            return (logits, received) if return_received else logits
        if return_received:
            raise ValueError(
                "what each cell received is only asked of the recurrent decoder, this one is "
                f"{self.config.decoder!r}; see `regularised`"
            )
        return self.decoder(memory, ids)

    def regulariser(self, received: Float[Tensor, "B P"]) -> Float[Tensor, ""]:
        """The term added to the loss: every cell should receive a total weight of about one.

        weight * mean over pictures and cells of (1 - received)²
        """
        return self.config.doubly_stochastic * (1 - received).square().mean()

    @torch.no_grad()
    def start(
        self, images: Float[Tensor, "B ..."], *, look: bool | Sequence[int] = False
    ) -> DecoderState | RecurrentState:
        """Encode the pictures, once; the state before the first word, a row for each picture.

        Args:
            images: Pictures, or grids of a frozen encoder.
            look: Whether ``state.attention_weights`` is wanted: the weights over the grid, of the config's
                ``look_layer``; or the layers to have them of. The heads of several follow one another.
        """
        memory = self.encode(images)
        if isinstance(self.decoder, RecurrentDecoder):
            return self.decoder.start(memory, look=bool(look))
        if isinstance(look, bool):
            look = self._shown if look else ()
        return self.decoder.start(memory, look=look)

    @property
    def _shown(self) -> Sequence[int]:
        """The layers whose attention is shown by default."""
        chosen = self.config.look_layer
        return range(self.config.n_layers) if chosen is None else (chosen,)

    @torch.no_grad()
    def step(
        self, state: DecoderState | RecurrentState, ids: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, "N V"], DecoderState | RecurrentState]:
        """The log-probabilities of the next token after ``ids``, and the state that has read them.

        Nothing is dropped, in training neither.
        """
        if isinstance(self.decoder, RecurrentDecoder):
            assert isinstance(state, RecurrentState)  # noqa: S101
            return self.decoder.step(state, ids)
        assert isinstance(state, DecoderState)  # noqa: S101
        return self.decoder.step(state, ids)


class TextDecoder(nn.Module):
    """A Transformer decoder from ids to logits: embedding, positions, pre-norm layers, readout."""

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        n_heads: int,
        n_layers: int,
        d_ff: int,
        dropout: float,
        tied: bool,
        max_length: int,
        embedding_scale: float = 1.0,
        position_scale: float = 1.0,
        positions: str = "sinusoidal",
    ) -> None:
        super().__init__()
        self.embedding_scale, self.position_scale = embedding_scale, embedding_scale * position_scale
        self.words = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.words.weight, std=d_model**-0.5)
        self.positions: SinusoidalPositions | LearnedPositions | None = None  # none to add where they rotate
        if positions == "sinusoidal":
            self.positions = SinusoidalPositions(d_model, max_length)
        elif positions == "learned":
            self.positions = LearnedPositions(max_length, d_model)
        self.rotary = Rotary(d_model // n_heads) if positions == "rotary" else None
        self.dropout = nn.Dropout(dropout)
        layer = _SharedMemory(
            d_model, n_heads, d_ff, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = TransformerDecoder(layer, n_layers, nn.LayerNorm(d_model))
        if self.rotary is not None:
            rotate_self_attention(self.layers, self.rotary)
        for weight in self.layers.parameters():
            if weight.dim() > 1:  # torch's stack starts with equal layers
                nn.init.xavier_uniform_(weight)
        self.output = None if tied else nn.Linear(d_model, vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, memory: Float[Tensor, "B P C"], ids: Int[Tensor, "N T"]) -> Float[Tensor, "N T V"]:
        """The logits after each of the ids; N is a multiple of B, the captions of a picture side by side."""
        x = self.dropout(self._embedded(ids))
        # With the hint the mask is not read; torch's signature wants it all the same. Padding stands at the
        # end, where no real token looks.
        mask = nn.Transformer.generate_square_subsequent_mask(ids.size(1), x.device, x.dtype)
        return self._logits(self.layers(x, memory, tgt_mask=mask, tgt_is_causal=True))

    @torch.no_grad()
    def start(self, memory: Float[Tensor, "B P C"], *, look: Sequence[int] = ()) -> DecoderState:
        """The state before the first word."""
        return begin(self.layers, memory, look=look)

    @torch.no_grad()
    def step(self, state: DecoderState, ids: Int[Tensor, " N"]) -> tuple[Float[Tensor, "N V"], DecoderState]:
        """The log-probabilities of the word after ``ids``."""
        x = self._embedded(ids[:, None], offset=state.length)[:, 0]
        x, state = advance(self.layers, x, state, rotate=None if self.rotary is None else self._rotated)
        logits = self._logits(x)
        return logits.log_softmax(-1, torch.promote_types(logits.dtype, torch.float32)), state

    def _embedded(self, ids: Int[Tensor, "N T"], *, offset: int = 0) -> Float[Tensor, "N T E"]:
        """Words with their positions, where ``offset`` words were read before."""
        x = self.words(ids) * (self.embedding_scale * self.words.embedding_dim**0.5)
        if isinstance(self.positions, SinusoidalPositions):
            return x + self.position_scale * self.positions.rows(offset, offset + ids.size(1), x)
        return x if self.positions is None else self.positions(x, offset=offset)

    def _rotated(self, x: Tensor, offset: int) -> Tensor:
        assert self.rotary is not None  # noqa: S101
        return self.rotary.rotate(x, offset=offset)

    def _logits(self, x: Tensor) -> Tensor:
        weight = self.words.weight if self.output is None else self.output.weight
        return (_in_aligned_rows if x.is_cuda else F.linear)(x, weight, self.bias)


def _in_aligned_rows(
    x: Float[Tensor, "... E"], weight: Float[Tensor, "V E"], bias: Float[Tensor, " V"]
) -> Float[Tensor, "... V"]:
    """``F.linear``, computed in rows of a length that a GPU multiplies fast."""
    words = weight.size(0)
    more = -words % _ALIGNED
    if more:
        weight, bias = F.pad(weight, (0, 0, 0, more)), F.pad(bias, (0, more))
    return F.linear(x, weight, bias)[..., :words]


class _SharedMemory(TransformerDecoderLayer):
    """A layer whose rows may share a memory: keys and values of a picture serve all of its captions."""

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        """Cross-attention; the queries of a picture's captions follow one another."""
        together = x.reshape(mem.size(0), -1, x.size(-1))  # (B, N / B * T, E)
        key, value = keys_and_values(mem, x.size(-1))
        if key is value:
            context = super()._mha_block(together, mem, attn_mask, key_padding_mask, is_causal)
        else:
            context = self.dropout2(self.multihead_attn(together, key, value, need_weights=False)[0])
        return context.reshape(x.shape)


def _encoder(config: CaptionerConfig) -> PatchEncoder | GridEncoder:
    if config.encoder == "patches":
        return PatchEncoder(
            image_size=config.image_size,
            patch=config.patch,
            stem=config.stem,
            n_convs=config.n_convs,
            local_keys=config.local_keys,
            d_model=config.d_model,
            n_heads=config.n_heads,
            n_layers=config.n_encoder_layers,
            d_ff=config.d_ff,
            dropout=config.dropout,
            positions=config.positions,
            relative_bias=config.relative_bias,
        )
    return GridEncoder(
        config.encoder,
        image_size=config.image_size,
        trained=config.finetune,
        d_model=config.d_model,
        n_heads=config.n_heads,
        n_layers=config.n_encoder_layers,
        d_ff=config.d_ff,
        dropout=config.dropout,
        feature_dropout=config.feature_dropout,
        positions=config.positions,
    )
