"""Settings of a captioner."""

from dataclasses import dataclass

from sightline.models.caption_encoders import NETWORKS
from sightline.positions import POSITIONS
from sightline.settings import check, setting

__all__ = ["DECODERS", "ENCODERS", "CaptionerConfig"]

ENCODERS = ("patches", *NETWORKS)
DECODERS = ("transformer", "recurrent")


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionerConfig:
    """Settings of a captioner; a run keeps them beside its weights.

    Example:
        >>> CaptionerConfig(image_size=64, patch=8, d_model=32, n_heads=4).d_model
        32
        >>> CaptionerConfig(d_model=30, n_heads=4)
        Traceback (most recent call last):
        ValueError: n_heads must divide d_model, got n_heads=4 for d_model=30
    """

    vocab_size: int = setting(
        10000, "Words the model knows, the special ones included.", at_least=5, largest=1 << 24, advanced=True
    )
    encoder: str = setting("patches", f"What sees the picture: {', '.join(ENCODERS)}.", choices=ENCODERS)
    decoder: str = setting(
        "transformer", f"What writes the caption: {', '.join(DECODERS)}.", choices=DECODERS, advanced=True
    )
    image_size: int = setting(224, "Side of the square pictures, in pixels.", at_least=1, largest=1 << 13)
    patch: int = setting(
        16,
        "Side of a patch in pixels, for encoder patches; it divides image_size.",
        at_least=1,
        largest=1 << 13,
    )
    stem: int = setting(
        0, "Convolutions of stride two before the cut into patches.", at_least=0, largest=12, advanced=True
    )
    n_convs: int = setting(
        0, "Residual convolutions over the grid of patches.", at_least=0, largest=1000, advanced=True
    )
    local_keys: bool = setting(
        False, "Find a patch by its own pixels, without what convolutions add.", advanced=True
    )
    finetune: bool = setting(
        False, "Train the pretrained encoder along instead of keeping it frozen.", advanced=True
    )
    d_model: int = setting(512, "Width of the model.", at_least=1, largest=1 << 16)
    n_heads: int = setting(8, "Attention heads; they divide d_model.", at_least=1, largest=1 << 12)
    n_layers: int = setting(3, "Layers of the Transformer decoder.", at_least=1, largest=1000)
    n_encoder_layers: int = setting(
        0, "Layers of the Transformer encoder over the grid.", at_least=0, largest=1000, advanced=True
    )
    d_ff: int = setting(
        2048, "Width inside the feed-forward layers.", at_least=1, largest=1 << 20, advanced=True
    )
    d_hidden: int = setting(
        512, "Width of the recurrent decoder's LSTM.", at_least=1, largest=1 << 16, advanced=True
    )
    dropout: float = setting(0.1, "Share of activations dropped in training.", at_least=0, below=1)
    feature_dropout: float = setting(
        0.0,
        "Share of a pretrained encoder's features dropped in training.",
        at_least=0,
        below=1,
        advanced=True,
    )
    tied: bool = setting(True, "Whether words read and words written share their vectors.", advanced=True)
    max_length: int = setting(
        40, "Most tokens of a caption, its end included.", at_least=1, largest=1 << 20, advanced=True
    )
    positions: str = setting(
        "sinusoidal",
        f"Where a word or a patch stands: {', '.join(POSITIONS)}.",
        choices=POSITIONS,
    )
    relative_bias: bool = setting(
        False,
        "Whether layers over patches learn a bias for each distance, each head beginning at one neighbour.",
        advanced=True,
    )
    embedding_scale: float = setting(
        1.0,
        "Scale of the word embeddings against what the layers add, before training.",
        above=0,
        aliases=("volume",),
        advanced=True,
    )
    position_scale: float = setting(
        1.0,
        "Scale of sinusoidal positions against the word, before training.",
        at_least=0,
        aliases=("order",),
        advanced=True,
    )
    look_layer: int | None = setting(
        -1,
        "The decoder layer whose attention is shown; -1 is the last. None: the heads of all of them.",
        advanced=True,
    )
    doubly_stochastic: float = setting(
        1.0,
        "Weight of the recurrent decoder's wish to look at all of the picture.",
        at_least=0,
        advanced=True,
    )

    def __post_init__(self) -> None:
        check(self)
        if self.d_model % self.n_heads:
            raise ValueError(
                f"n_heads must divide d_model, got n_heads={self.n_heads} for d_model={self.d_model}"
            )
        if self.look_layer is not None and not -self.n_layers <= self.look_layer < self.n_layers:
            raise ValueError(
                f"look_layer must be one of the {self.n_layers} layers, got {self.look_layer}; "
                "-1 is the last, none stands for all"
            )
        if self.local_keys and self.encoder != "patches":
            raise ValueError(f"local_keys are for the encoder 'patches', got {self.encoder!r}")
        self._check_rotary()
        self._check_relative_bias()

    def _check_rotary(self) -> None:
        if self.positions == "rotary" and self.decoder == "recurrent" and not self.n_encoder_layers:
            raise ValueError(
                "rotary positions turn the queries and keys of a Transformer's layers; a recurrent decoder "
                "has none but those of its encoder, got n_encoder_layers=0; choose sinusoidal or learned "
                "positions for its patches, or add layers"
            )
        d_head = self.d_model // self.n_heads
        multiple = 4 if self.n_encoder_layers else 2
        if self.positions == "rotary" and d_head % multiple:
            raise ValueError(
                f"rotary positions turn pairs of channels, so a head's width must be a multiple of {multiple}"
                f"{', of 4 where patches stand in rows and columns' if multiple == 4 else ''}, got {d_head} "
                f"for d_model={self.d_model} and n_heads={self.n_heads}; change one of them"
            )

    def _check_relative_bias(self) -> None:
        if not self.relative_bias:
            return
        if self.encoder != "patches" or not self.n_encoder_layers:
            raise ValueError(
                "relative_bias is for the layers of the encoder 'patches', got encoder="
                f"{self.encoder!r} with n_encoder_layers={self.n_encoder_layers}; add layers, or leave it out"
            )
        if self.positions == "rotary":
            raise ValueError(
                "rotary positions and relative_bias both tell distances, got both; choose one of them"
            )
