"""The Vision Transformer (Dosovitskiy et al., 2020): an image is a sentence of patches.

    tokens = [class; patches of the image] + positions        logits = head(norm(encoder(tokens))[class])

``vit_config.py`` says what can be chosen, ``vit_parts.py`` holds the pieces, ``vit_weights.py`` takes weights
from timm and from Hugging Face.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from sightline.data.augment import as_floats
from sightline.models.run_folder import SaveableModel
from sightline.models.vit_config import SIZES, VisionTransformerConfig
from sightline.models.vit_parts import (
    Block,
    ConvStem,
    PatchStem,
    Rotation,
    layer_norm,
    resize_positions,
    rotation_2d,
)
from sightline.positions.grid import sinusoidal_2d
from sightline.shapes import Float, Shaped, did_you_mean, is_tensor

__all__ = ["SIZES", "VisionTransformer", "VisionTransformerConfig"]

_ROTARY_BASE = 100.0  # a grid has tens of rows, not thousands


class VisionTransformer(SaveableModel):
    """Classify images by attention between their patches.

    Images of another size than ``config.image_size`` are taken as they are if the patch divides them: the
    positions are interpolated.

    Example:
        >>> config = VisionTransformerConfig(image_size=8, patch=2, channels=1, d_model=32, n_heads=2)
        >>> VisionTransformer(config)(torch.zeros(5, 1, 8, 8)).shape
        torch.Size([5, 10])
    """

    kind = "classify"
    Config = VisionTransformerConfig
    config: VisionTransformerConfig
    cos: Tensor | None
    sin: Tensor | None

    def __init__(self, config: VisionTransformerConfig) -> None:
        super().__init__()
        self.config = config
        e, side = config.d_model, config.image_size // config.patch
        stem = ConvStem if config.stem == "conv" else PatchStem
        self.stem = stem(config.channels, e, config.patch)
        self.token = nn.Parameter(torch.zeros(e)) if config.pool == "token" else None
        self.positions: Tensor | None
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.zeros(side, side, e))
        else:  # none to add where queries and keys are rotated
            table = sinusoidal_2d(side, side, e) if config.positions == "sinusoidal" else None
            self.register_buffer("positions", table, persistent=False)
        rotation = self._new_rotation(self.grid) if config.positions == "rotary" else (None, None)
        self.register_buffer("cos", rotation[0], persistent=False)
        self.register_buffer("sin", rotation[1], persistent=False)
        last = max(config.n_layers - 1, 1)
        self.layers = nn.ModuleList(
            Block(
                e,
                config.n_heads,
                config.d_ff,
                dropout=config.dropout,
                drop_path=config.drop_path * i / last,
                norm_eps=config.norm_eps,
                rotary=config.positions == "rotary",
            )
            for i in range(config.n_layers)
        )
        self.norm = nn.LayerNorm(e, eps=config.norm_eps)
        self.head = nn.Linear(e, config.n_classes)
        self.dropout = nn.Dropout(config.dropout)
        self.reset_parameters()

    @classmethod
    def sized(cls, size: str, config: VisionTransformerConfig) -> "VisionTransformer":
        """A model of a named size, all else as in ``config``.

        Example:
            >>> model = VisionTransformer.sized("micro", VisionTransformerConfig(image_size=32, patch=4))
            >>> sum(parameter.numel() for parameter in model.parameters())
            119146
        """
        if size not in SIZES:
            raise ValueError(f"unknown size {size!r}, {did_you_mean(size, SIZES)}")
        return cls(replace(config, **SIZES[size]._asdict()))

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches of an image of the size it is trained on."""
        side = self.config.image_size // self.config.patch
        return side, side

    @property
    def n_extra(self) -> int:
        """How many tokens stand before the patches: 1 with a class token."""
        return int(self.config.pool == "token")

    def reset_parameters(self) -> None:
        """Draw the weights as the ViT paper does; the head starts at zero, so that all classes are alike."""
        for module in self.layers.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        for parameter in (self.token, self.positions):
            if isinstance(parameter, nn.Parameter):
                nn.init.trunc_normal_(parameter, std=0.02)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Float[Tensor, "B C h w"]) -> Float[Tensor, "B V"]:
        """Logits of the classes, of images that are normalised floats."""
        x = self.encode(images)
        if self.token is not None:
            return self.head(layer_norm(self.norm, x[:, 0]))
        return self.head(layer_norm(self.norm, x).mean(dim=1))

    @torch.no_grad()
    def predict(
        self, images: Shaped[Tensor, "N C h w"], *, views: int = 1, batch_size: int = 512
    ) -> Float[Tensor, "N V"]:
        """Logits of bytes as they are read from files, a batch at a time; with 2 views, also mirrored."""
        device = self.head.weight.device
        found = []
        for part in images.split(batch_size):
            x = as_floats(part.to(device))
            logits = self(x).float()
            found.append((logits + self(x.flip(-1)).float()) / 2 if views == 2 else logits)
        return torch.cat(found) if found else self.head.weight.new_zeros(0, self.config.n_classes)

    def encode(self, images: Float[Tensor, "B C h w"]) -> Float[Tensor, "B T E"]:
        """All tokens after the last layer: the class token first where there is one, then P patches."""
        self._check(images)
        x = self.stem(images)  # (B, rows, columns, E)
        grid = (x.size(1), x.size(2))
        if self.positions is not None:
            x = x + resize_positions(self.positions, grid).to(x.dtype)
        x = x.flatten(1, 2)  # (B, P, E)
        if self.token is not None:
            x = torch.cat([self.token.to(x.dtype).expand(x.size(0), 1, -1), x], dim=1)
        x = self.dropout(x)
        rotation = self._rotation(grid) if self.config.positions == "rotary" else None
        for layer in self.layers:
            x = layer(x, rotation)
        return x

    def _rotation(self, grid: tuple[int, int]) -> Rotation:
        """The rotations of the tokens of a grid; those of the grid it was trained on are at hand."""
        assert self.cos is not None  # noqa: S101 - there for rotary positions
        assert self.sin is not None  # noqa: S101
        if grid == self.grid:
            return self.cos, self.sin
        cos, sin = self._new_rotation(grid)
        return cos.to(self.cos), sin.to(self.sin)

    def _new_rotation(self, grid: tuple[int, int]) -> Rotation:
        """The rotations of a grid, each patch by where its middle lies in the grid it was trained on."""
        cpu = torch.device("cpu")  # where the rates are, whatever the device that models are made on
        sides = zip(grid, self.grid, strict=True)
        rows, columns = ((torch.arange(n, device=cpu) + 0.5) * (side / n) - 0.5 for n, side in sides)
        places = torch.cartesian_prod(rows, columns)
        places = torch.cat([places.new_zeros(self.n_extra, 2), places])  # the class token is not rotated
        d_head = self.config.d_model // self.config.n_heads
        return rotation_2d(places[:, 0], places[:, 1], d_head, _ROTARY_BASE)

    def _check(self, images: Tensor) -> None:
        is_tensor(images, "images")
        config = self.config
        if images.dim() != 4 or images.size(1) != config.channels:
            raise ValueError(
                f"images must be (B, C, h, w) with C={config.channels} channels, got {tuple(images.shape)}; "
                "sightline.data.class_set.fit_image makes an image fit"
            )
        if not images.is_floating_point():
            raise TypeError(
                f"images must be normalised floats, got {images.dtype}; see data.augment.as_floats"
            )
        h, w = images.shape[2:]
        if h % config.patch or w % config.patch or not h or not w:
            raise ValueError(
                f"patches of {config.patch} x {config.patch} must divide the image, got {h} x {w} pixels; "
                f"resize it to {_nearest(h, config.patch)} x {_nearest(w, config.patch)}, or to the "
                f"{config.image_size} x {config.image_size} it was trained on"
            )


def _nearest(side: int, patch: int) -> int:
    return max(1, round(side / patch)) * patch
