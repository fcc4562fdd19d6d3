"""Settings of a Vision Transformer, and its named sizes."""

from dataclasses import dataclass
from typing import NamedTuple

from sightline.settings import check, setting

__all__ = ["SIZES", "ModelSize", "VisionTransformerConfig"]


class ModelSize(NamedTuple):
    """How wide and how deep."""

    d_model: int
    n_heads: int
    n_layers: int
    d_ff: int


# Parameters of the encoder alone; the last three are the papers' Ti, S and B.
SIZES = {
    "micro": ModelSize(48, 3, 4, 192),  # 0.1 M
    "mini": ModelSize(96, 4, 6, 384),  # 0.7 M
    "compact": ModelSize(256, 4, 7, 768),  # 4.6 M
    "tiny": ModelSize(192, 3, 12, 768),  # 5.3 M
    "small": ModelSize(384, 6, 12, 1536),  # 21 M
    "base": ModelSize(768, 12, 12, 3072),  # 85 M
}


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionTransformerConfig:
    """Settings of a Vision Transformer.

    Example:
        >>> VisionTransformerConfig(image_size=28, patch=7, channels=1).n_classes
        10
    """

    n_classes: int = setting(10, "How many classes there are.", at_least=1, largest=1 << 24, advanced=True)
    channels: int = setting(3, "1 for grey images, 3 for colour.", at_least=1, largest=1024, advanced=True)
    image_size: int = setting(
        224, "Height and width of the images it is trained on, in pixels.", at_least=1, largest=1 << 13
    )
    patch: int = setting(
        16, "Height and width of a patch; it must divide the image.", at_least=1, largest=1 << 13
    )
    d_model: int = setting(192, "Width of the tokens, E.", at_least=1, largest=1 << 16)
    n_heads: int = setting(3, "Heads of a layer; they share d_model.", at_least=1, largest=1 << 12)
    n_layers: int = setting(12, "Layers.", at_least=1, largest=1000)
    d_ff: int = setting(768, "Width of the feed-forward layers.", at_least=1, largest=1 << 20)
    stem: str = setting(
        "patches",
        "How tokens are made: 'patches', or 'conv' for overlapping 3 x 3 convolutions.",
        choices=("patches", "conv"),
        advanced=True,
    )
    positions: str = setting(
        "learned",
        "Where a token stands: 'learned', 'sinusoidal' or 'rotary'.",
        choices=("learned", "sinusoidal", "rotary"),
    )
    pool: str = setting(
        "token",
        "What is classified: the class 'token', or the 'mean' of the patches.",
        choices=("token", "mean"),
        advanced=True,
    )
    dropout: float = setting(0.0, "Share of the activations dropped in training.", at_least=0, below=1)
    drop_path: float = setting(
        0.0,
        "Stochastic depth: how often the last layer is left out; earlier ones less.",
        at_least=0,
        below=1,
        advanced=True,
    )
    norm_eps: float = setting(1e-6, "Added to the variance in every norm.", at_least=0, advanced=True)

    def __post_init__(self) -> None:
        check(self)
        self._check_patch()
        self._check_widths()

    def _check_patch(self) -> None:
        divisors = [n for n in range(1, self.image_size + 1) if self.image_size % n == 0]
        if self.patch not in divisors:
            raise ValueError(
                f"patch must divide image_size, got patch={self.patch} for image_size={self.image_size}; "
                f"{_listed(divisors)} do"
            )
        powers = [n for n in divisors if n.bit_count() == 1]
        if self.stem == "conv" and self.patch not in powers:
            raise ValueError(
                f"a convolutional stem halves the image, so patch must be a power of two, got {self.patch} "
                f"for image_size={self.image_size}; {_listed(powers)} would do, or stem='patches'"
            )

    def _check_widths(self) -> None:
        if self.d_model % self.n_heads:
            raise ValueError(
                f"n_heads must divide d_model, got n_heads={self.n_heads} for d_model={self.d_model}; "
                "each head takes an equal share"
            )
        d_head = self.d_model // self.n_heads
        if self.positions == "rotary" and d_head % 4:
            raise ValueError(
                "rotary positions turn pairs of channels, half for rows and half for columns, so a head's "
                f"width must be a multiple of 4, got {d_head} for d_model={self.d_model} and "
                f"n_heads={self.n_heads}; change one of them"
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, got {self.d_model}")


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
