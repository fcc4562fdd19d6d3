"""The Transformer as a translator (Vaswani et al., 2017): encoder, decoder, embeddings and positions.

    memory = encoder(embed(source) + positions)
    logits = embeddingᵀ · decoder(embed(target) + positions, memory)

Both stacks are those of ``sightline.layers``; decoding goes through the cached steps of ``steps.py``.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.data.tokens import PAD
from sightline.layers.decoder import TransformerDecoder, TransformerDecoderLayer
from sightline.layers.encoder import TransformerEncoder, TransformerEncoderLayer
from sightline.models.rnn import RecurrentTranslator, check_architecture, check_shared
from sightline.models.rotary_attention import rotate_self_attention
from sightline.models.run_folder import SaveableModel, read_config
from sightline.models.steps import DecoderState, advance, begin, padding_bias
from sightline.positions import POSITIONS, LearnedPositions, Rotary, SinusoidalPositions
from sightline.settings import check, setting
from sightline.shapes import Bool, Float, Int

__all__ = ["POSITIONS", "Translator", "TranslatorConfig", "open_translator"]

NORMS = ("pre", "post")


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslatorConfig:
    """The shape of a Transformer translator.

    Example:
        >>> TranslatorConfig(source_vocab_size=50, vocab_size=40, d_model=32, n_heads=4).norm
        'pre'
    """

    architecture: Literal["transformer"] = setting("transformer", "Which translator this is.", advanced=True)
    source_vocab_size: int = setting(
        0, "Tokens of the source; 0: as the tokenizer has.", at_least=0, largest=1 << 24, advanced=True
    )
    vocab_size: int = setting(
        0, "Tokens of the target; 0: as the tokenizer has.", at_least=0, largest=1 << 24, advanced=True
    )
    d_model: int = setting(256, "Width of the tokens, E.", at_least=1, largest=1 << 16)
    n_heads: int = setting(4, "Heads of a layer; they share d_model.", at_least=1, largest=1 << 12)
    n_layers: int = setting(3, "Layers of the encoder and of the decoder.", at_least=1, largest=1000)
    d_ff: int = setting(1024, "Width of the feed-forward layers.", at_least=1, largest=1 << 20)
    positions: str = setting(
        "sinusoidal", f"Where a token stands: {', '.join(POSITIONS)}.", choices=POSITIONS
    )
    norm: str = setting(
        "pre",
        "Whether a branch is normed at its entrance (pre) or its sum after it (post).",
        choices=NORMS,
        advanced=True,
    )
    dropout: float = setting(0.1, "Share of values dropped in training.", at_least=0, below=1)
    attention_dropout: float | None = setting(
        None, "Share of weights dropped; None: as the values.", at_least=0, below=1, advanced=True
    )
    tied: bool = setting(True, "Whether the output uses the target's embeddings.", advanced=True)
    shared: bool = setting(
        False, "Whether source and target share embeddings; needs a joint vocabulary.", advanced=True
    )
    max_length: int = setting(
        256,
        "The longest source and target in training, in tokens.",
        at_least=1,
        largest=1 << 20,
        advanced=True,
    )

    def __post_init__(self) -> None:
        if self.architecture != "transformer":
            raise ValueError(f"this is a Transformer's config, got architecture {self.architecture!r}")
        check(self)
        self._check_heads()
        check_shared(shared=self.shared, source=self.source_vocab_size, target=self.vocab_size)

    @property
    def longest(self) -> int | None:
        """The most tokens that the model can read or write: only a learned table of positions ends."""
        return self.max_length if self.positions == "learned" else None

    def _check_heads(self) -> None:
        if self.d_model % self.n_heads:
            raise ValueError(
                f"n_heads must divide d_model, got n_heads={self.n_heads} for d_model={self.d_model}; "
                "each head takes an equal share"
            )
        if self.positions == "rotary" and self.d_model // self.n_heads % 2:
            raise ValueError(
                "rotary positions turn pairs of channels, so a head's width must be even, got "
                f"{self.d_model // self.n_heads} for d_model={self.d_model} and n_heads={self.n_heads}; "
                "change one of them"
            )


class Translator(SaveableModel):
    """An encoder-decoder Transformer.

    Example:
        >>> config = TranslatorConfig(source_vocab_size=11, vocab_size=13, d_model=8, n_heads=2, d_ff=16)
        >>> model = Translator(config)
        >>> model(torch.ones(2, 5, dtype=torch.long), torch.ones(2, 3, dtype=torch.long)).shape  # B, T, V
        torch.Size([2, 3, 13])
    """

    kind = "translate"
    Config = TranslatorConfig
    config: TranslatorConfig

    def __init__(self, config: TranslatorConfig) -> None:
        super().__init__()
        self.config = config
        e = config.d_model
        self.embedding = nn.Embedding(config.vocab_size, e, padding_idx=PAD)
        self.source_embedding = (
            None if config.shared else nn.Embedding(config.source_vocab_size, e, padding_idx=PAD)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.rotary = Rotary(e // config.n_heads) if config.positions == "rotary" else None
        self.places = _places(config)
        self.target_places = _places(config)
        pre = config.norm == "pre"
        shape = (e, config.n_heads, config.d_ff, config.dropout)
        self.encoder = TransformerEncoder(
            TransformerEncoderLayer(*shape, batch_first=True, norm_first=pre),
            config.n_layers,
            nn.LayerNorm(e) if pre else None,
            enable_nested_tensor=False,
        )
        self.decoder = TransformerDecoder(
            TransformerDecoderLayer(*shape, batch_first=True, norm_first=pre),
            config.n_layers,
            nn.LayerNorm(e) if pre else None,
        )
        self._set_attention()
        self.output = None if config.tied else nn.Linear(e, config.vocab_size, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        for embedding in (self.embedding, self.source_embedding):
            if embedding is not None:
                nn.init.normal_(embedding.weight, std=e**-0.5)

    def _set_attention(self) -> None:
        """Give self-attention rotary positions if they are chosen, and all attention its dropout."""
        dropped = self.config.attention_dropout
        if self.rotary is not None:
            rotate_self_attention(self.encoder, self.rotary)
            rotate_self_attention(self.decoder, self.rotary)
        for layer in (*self.encoder.layers, *self.decoder.layers):
            for attention_of in (layer.self_attn, getattr(layer, "multihead_attn", None)):
                if attention_of is not None and dropped is not None:
                    attention_of.dropout = dropped

    @classmethod
    def load(
        cls, folder: Path | str, device: torch.device | str = "cpu", *, force: bool = False
    ) -> "Translator":
        """The model of a run folder, in eval; see :meth:`sightline.models.run_folder.SaveableModel.load`."""
        check_architecture(folder, "transformer")
        return super().load(folder, device, force=force)

    def forward(self, source: Int[Tensor, "B S"], target: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """The logits of each next token, given the source and the true tokens before it."""
        memory, padding = self.encode(source)
        t = target.size(1)
        future = torch.ones(t, t, dtype=torch.bool, device=target.device).triu_(1)
        x = self.decoder(
            self._with_positions(self.embedding(target), self.target_places),
            memory,
            tgt_mask=future,
            tgt_is_causal=True,  # padding at the end is the future of all that is real
            memory_key_padding_mask=padding,
        )
        return self._logits(x)

    def encode(self, source: Int[Tensor, "B S"]) -> tuple[Float[Tensor, "B S E"], Float[Tensor, "B S"]]:
        """Encode the source; also the bias that hides its padding, made once for all layers."""
        most = self.config.longest
        if most is not None and source.size(1) > most:
            raise ValueError(
                f"this model has learned positions for max_length={most} tokens, got a source of "
                f"{source.size(1)}; split it into sentences"
            )
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        x = self._with_positions(embedding(source), self.places)
        padding = _bias(source != PAD, x)
        return self.encoder(x, src_key_padding_mask=padding, is_causal=False), padding

    def start(self, source: Int[Tensor, "B S"], *, look: bool = False) -> DecoderState:
        """Read the source once; the state from which the first token is chosen.

        A state that looks has the weights of all heads of all layers over the source, layer after layer.
        """
        memory, _ = self.encode(source)
        layers = range(self.config.n_layers) if look else ()
        return begin(self.decoder, memory, source != PAD, look=layers)

    def step(self, state: DecoderState, ids: Int[Tensor, " N"]) -> tuple[Float[Tensor, "N V"], DecoderState]:
        """The log-probabilities of the next token after ``ids``, and the state that has seen them."""
        x = self._with_positions(self.embedding(ids)[:, None], self.target_places, offset=state.length)[:, 0]
        x, state = advance(self.decoder, x, state, rotate=None if self.rotary is None else self._rotated)
        logits = self._logits(x)
        return logits.log_softmax(-1, torch.promote_types(logits.dtype, torch.float32)), state

    def _rotated(self, x: Tensor, offset: int) -> Tensor:
        assert self.rotary is not None  # noqa: S101
        return self.rotary.rotate(x, offset=offset)

    def _with_positions(self, x: Tensor, places: nn.Module | None, *, offset: int = 0) -> Tensor:
        x = x * math.sqrt(self.config.d_model)
        return self.dropout(x if places is None else places(x, offset=offset))

    def _logits(self, x: Tensor) -> Tensor:
        return F.linear(x, self.embedding.weight) if self.output is None else self.output(x)


def open_translator(
    folder: Path | str, device: torch.device | str = "cpu", *, force: bool = False
) -> Translator | RecurrentTranslator:
    """The translator of a run folder, whichever it is, in eval."""
    recurrent = read_config(folder)["model"].get("architecture") == "recurrent"
    return (RecurrentTranslator if recurrent else Translator).load(folder, device, force=force)


def _places(config: TranslatorConfig) -> nn.Module | None:
    if config.positions == "sinusoidal":
        return SinusoidalPositions(config.d_model, config.max_length)
    if config.positions == "learned":
        return LearnedPositions(config.max_length, config.d_model)
    return None


def _bias(real: Bool[Tensor, "B S"], x: Tensor) -> Float[Tensor, "B S"]:
    """The padding's attention bias, in the dtype that attention will run in."""
    device = x.device.type
    halved = torch.is_autocast_enabled(device)
    return padding_bias(real, torch.get_autocast_dtype(device) if halved else x.dtype)
