"""The parts of a Vision Transformer: how an image becomes tokens, where they stand, and one layer.

    image (C, h, w) -> patches (P, C p p) -> tokens (P, E)        P = (h / p) (w / p)

The lecture notes' example: 224 x 224 in patches of 16 x 16 gives 14 x 14 = 196 tokens of 16 · 16 · 3 = 768.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention.attend import attention
from sightline.attention.multihead import MultiheadAttention
from sightline.layers.encoder import TransformerEncoderLayer
from sightline.positions.sinusoidal import frequencies
from sightline.shapes import Float, Shaped, autocasting

__all__ = [
    "Block",
    "ConvStem",
    "PatchStem",
    "Rotation",
    "layer_norm",
    "resize_positions",
    "rotate_2d",
    "rotation_2d",
]

Rotation = tuple[Tensor, Tensor]  # the cosines and the sines that rotate queries and keys, each (T, D)


class PatchStem(nn.Module):
    """Cut an image into patches and map each to a token: a convolution whose windows don't overlap.

    Its parameters are those of ``nn.Conv2d(channels, d_model, patch, stride=patch)``; it is computed as one
    matrix product, which is what such a convolution is.

    Example:
        >>> PatchStem(3, 768, 16)(torch.zeros(1, 3, 224, 224)).shape
        torch.Size([1, 14, 14, 768])
    """

    def __init__(self, channels: int, d_model: int, patch: int) -> None:
        super().__init__()
        self.patch = patch
        self.weight = nn.Parameter(torch.empty(d_model, channels, patch, patch))
        self.bias = nn.Parameter(torch.zeros(d_model))
        nn.init.xavier_uniform_(self.weight.view(d_model, -1))

    def forward(self, images: Float[Tensor, "B C h w"]) -> Float[Tensor, "B rows columns E"]:
        """Tokens in the grid of their patches."""
        return F.linear(patches(images, self.patch), self.weight.flatten(1), self.bias)


def patches(images: Float[Tensor, "B C h w"], patch: int) -> Float[Tensor, "B rows columns Cpp"]:
    """Cut images into patches, each flattened channel by channel and row by row."""
    b, c, h, w = images.shape
    cut = images.view(b, c, h // patch, patch, w // patch, patch)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(b, h // patch, w // patch, c * patch * patch)


class ConvStem(nn.Sequential):
    """A stem of 3 x 3 convolutions, each after the first halving the image (Xiao et al., 2021).

    Neighbouring tokens share pixels, and a small set teaches local shapes faster than by patches alone.

    Example:
        >>> ConvStem(1, 64, 4)(torch.zeros(1, 1, 28, 28)).shape
        torch.Size([1, 7, 7, 64])
    """

    def __init__(self, channels: int, d_model: int, patch: int) -> None:
        halvings = patch.bit_length() - 1
        widths = [max(8, (d_model >> (halvings - i)) // 8 * 8) for i in range(halvings + 1)]
        layers: list[nn.Module] = []
        for i, width in enumerate(widths):
            before = channels if i == 0 else widths[i - 1]
            convolution = nn.Conv2d(before, width, 3, stride=1 if i == 0 else 2, padding=1, bias=False)
            layers += [convolution, nn.GroupNorm(_groups(width), width), nn.GELU()]
        super().__init__(*layers, nn.Conv2d(widths[-1], d_model, 1))

    def forward(self, images: Float[Tensor, "B C h w"]) -> Float[Tensor, "B rows columns E"]:
        """Tokens in their grid."""
        x = images.contiguous(memory_format=torch.channels_last)
        for layer in self:
            x = layer(x)
        return x.permute(0, 2, 3, 1)


class Block(TransformerEncoderLayer):
    """A layer of the encoder, its norms first, with stochastic depth (Huang et al., 2016).

        x = x + drop(attend(norm1(x)))        x = x + drop(feedforward(norm2(x)))

    ``drop`` leaves out the whole branch of an image with probability ``drop_path`` while training, and
    scales the others up. ``dropout`` is that of the branches' ends and of the feed-forward's middle, not of
    the attention weights, as in the ViT paper.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        *,
        dropout: float,
        drop_path: float,
        norm_eps: float,
        rotary: bool,
    ) -> None:
        super().__init__(d_model, n_heads, d_ff, dropout, "gelu", norm_eps, True, True)
        attend = RotaryAttention2d if rotary else MultiheadAttention
        self.self_attn = attend(d_model, n_heads, batch_first=True)
        self.drop_path = drop_path

    def forward(self, x: Float[Tensor, "B T E"], rotation: Rotation | None = None) -> Float[Tensor, "B T E"]:  # type: ignore[override]
        """Self-attention over all tokens, then the feed-forward of each."""
        h = layer_norm(self.norm1, x)
        if rotation is None:
            context, _ = self.self_attn(h, h, h, need_weights=False)
        else:
            context = self.self_attn(h, rotation)
        x = self._added(x, self.dropout1(context))
        return self._added(x, self._ff_block(layer_norm(self.norm2, x)))

    def _added(self, x: Float[Tensor, "B T E"], branch: Float[Tensor, "B T E"]) -> Float[Tensor, "B T E"]:
        if not self.training or self.drop_path == 0:
            return x + branch
        keep = 1 - self.drop_path
        kept = branch.new_empty(x.size(0), 1, 1).bernoulli_(keep).div_(keep)
        return torch.addcmul(x, branch, kept) if x.dtype == branch.dtype else x + branch * kept


class RotaryAttention2d(MultiheadAttention):
    """Self-attention whose queries and keys are rotated by their places (rotary, in two dimensions)."""

    def forward(self, x: Float[Tensor, "B T E"], rotation: Rotation) -> Float[Tensor, "B T E"]:  # type: ignore[override]
        """Attend within an image."""
        projected = F.linear(x, self.in_proj_weight, self.in_proj_bias)
        projected = projected.unflatten(-1, (3, self.num_heads, self.head_dim))  # (B, T, 3, H, D)
        q, k = rotate_2d(projected[:, :, :2], rotation).transpose(1, 3).unbind(2)  # (B, H, T, D) each
        context = attention(q, k, projected[:, :, 2].transpose(1, 2))
        return self.out_proj(context.transpose(1, 2).flatten(2))


def rotation_2d(
    rows: Shaped[Tensor, " P"], columns: Shaped[Tensor, " P"], d_head: int, base: float
) -> Rotation:
    """The rotations of patches at these places: half of a head's channels for the row, half for the column.

    Each half is laid out as :class:`sightline.positions.Rotary` lays out a whole head. The sines carry the
    sign with which a channel's partner is added.
    """
    rate = frequencies(d_head // 2, base)
    angles = [x.double()[:, None] * rate for x in (rows, columns)]  # (P, D / 4) each
    cos = torch.cat([angle.cos() for angle in angles for _ in range(2)], dim=-1)
    sin = torch.cat([sign * angle.sin() for angle in angles for sign in (-1, 1)], dim=-1)
    return cos.float(), sin.float()


def rotate_2d(x: Float[Tensor, "B T n H D"], rotation: Rotation) -> Float[Tensor, "B T n H D"]:
    """Rotate the channels of each token in pairs: i with i + D / 4 within the first and the second half."""
    cos, sin = (table[:, None, None] for table in rotation)  # (T, 1, 1, D)
    partner = x.unflatten(-1, (2, 2, -1)).flip(-2).flatten(-3)
    return torch.addcmul(x * cos, partner, sin).to(x.dtype)


def layer_norm(norm: nn.LayerNorm, x: Float[Tensor, "... E"]) -> Float[Tensor, "... E"]:
    """Normalise in the dtype of x; statistics are float32 inside the kernel anyway.

    Under autocast torch would read and write float32, and the next product would round it again.
    """
    if x.dtype not in (torch.bfloat16, torch.float16) or not autocasting(x):
        return norm(x)
    with torch.autocast(x.device.type, enabled=False):
        weight, bias = norm.weight.to(x.dtype), norm.bias.to(x.dtype)
        return F.layer_norm(x, norm.normalized_shape, weight, bias, norm.eps)


def resize_positions(table: Float[Tensor, "r c E"], grid: tuple[int, int]) -> Float[Tensor, "rows columns E"]:
    """A table of positions for another grid, by bicubic interpolation; the same table for its own grid."""
    if tuple(table.shape[:2]) == grid:
        return table
    planes = table.permute(2, 0, 1)[None].float()
    resized = F.interpolate(planes, size=grid, mode="bicubic", align_corners=False, antialias=False)
    return resized[0].permute(1, 2, 0).to(table.dtype)


def _groups(width: int) -> int:
    return next(n for n in (8, 4, 2, 1) if width % n == 0)
