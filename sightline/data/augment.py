"""Augmentation on tensors, on their device, without waiting for it: a whole batch at a time.

Everything random is a function of (seed, epoch, index), see ``counter_rng.py``. All that moves pixels (crop,
shift, zoom, rotation, shear, flip, and those of RandAugment) is one affine map and one resampling, so
an image is blurred once at most, and not at all by flips and by shifts of whole pixels.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.data.augment_ops import TONES, apply_tones, brightness, contrast, saturation
from sightline.data.counter_rng import random_integers, random_uniform
from sightline.settings import check, setting
from sightline.shapes import Float, Int, Shaped

__all__ = ["Augment", "MixedBatch", "apply_augment", "as_floats", "mix", "partners"]

_MOVES = 5  # of RandAugment: rotate, shear and shift, the latter two each in two directions
_RATIO = math.log(4 / 3)  # how far from a square a crop may be
_STREAMS = {"move": 1, "colour": 2, "rand": 3, "erase": 4, "partner": 5, "mix": 6}


@dataclass(frozen=True, kw_only=True, slots=True)
class Augment:
    """How training images are changed; the defaults change nothing."""

    crop: float = setting(
        1.0,
        "Least share of the area that a random crop keeps; 1 crops nothing.",
        above=0,
        at_most=1,
        advanced=True,
    )
    shift: float = setting(
        0.0, "Largest shift, as a share of the side.", at_least=0, at_most=1, advanced=True
    )
    subpixel: bool = setting(
        False, "Shift by parts of a pixel as well, not only by whole ones.", advanced=True
    )
    zoom: float = setting(
        0.0, "Largest change of size: 0.1 is from 1 / 1.1 to 1.1 times.", at_least=0, advanced=True
    )
    rotate: float = setting(0.0, "Largest rotation, in degrees.", at_least=0, advanced=True)
    shear: float = setting(
        0.0, "Largest shear: 0.1 moves the top by a tenth of the height.", at_least=0, advanced=True
    )
    flip: float = setting(
        0.0, "How often an image is mirrored left to right.", at_least=0, at_most=1, advanced=True
    )
    colour: float = setting(
        0.0,
        "Largest change of brightness, contrast and saturation: 0.4 is 0.6 to 1.4 times.",
        at_least=0,
        advanced=True,
    )
    rand: int = setting(0, "Operations of RandAugment applied to each image.", at_least=0, advanced=True)
    rand_strength: float = setting(0.5, "How strong those are, 0 to 1.", at_least=0, at_most=1, advanced=True)
    erase: float = setting(
        0.0, "How often a rectangle is filled with noise.", at_least=0, at_most=1, advanced=True
    )
    mixup: float = setting(
        0.0, "Mixup's alpha: images and labels are blended; 0 never does.", at_least=0, advanced=True
    )
    cutmix: float = setting(
        0.0, "Cutmix's alpha: a rectangle comes from another image; 0 never does.", at_least=0, advanced=True
    )
    mix: float = setting(
        1.0,
        "How often an image is mixed at all, where mixup or cutmix is on.",
        at_least=0,
        at_most=1,
        advanced=True,
    )

    def __post_init__(self) -> None:
        check(self)

    @property
    def mixes(self) -> bool:
        """Whether an image may meet another one."""
        return self.mix > 0 and (self.mixup > 0 or self.cutmix > 0)

    @property
    def moves(self) -> bool:
        """Whether pixels may move."""
        names = ("shift", "zoom", "rotate", "shear", "flip", "rand")
        return self.crop < 1 or any(getattr(self, name) for name in names)


class MixedBatch(NamedTuple):
    """Images that may hold a part of another one."""

    images: Float[Tensor, "B C h w"]
    share: Float[Tensor, " B"]  # of the image's own label; the rest is its partner's


Epoch = int | Int[Tensor, ""]


def as_floats(images: Shaped[Tensor, "B C h w"]) -> Float[Tensor, "B C h w"]:
    """Bytes to floats from -1 to 1, what a model takes; grey or colour.

    Example:
        >>> as_floats(torch.tensor([0, 255], dtype=torch.uint8).view(1, 1, 1, 2)).flatten()
        tensor([-1.,  1.])
    """
    return images.float() / 127.5 - 1


def apply_augment(
    images: Shaped[Tensor, "B C h w"],
    augment: Augment,
    *,
    seed: int,
    epoch: Epoch,
    indices: Int[Tensor, " B"],
) -> Float[Tensor, "B C h w"]:
    """Change each image in its own way; bytes in, floats from -1 to 1 out.

    Example:
        >>> images, indices = torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.arange(3)
        >>> torch.equal(apply_augment(images, Augment(), seed=0, epoch=0, indices=indices), as_floats(images))
        True
    """
    if augment == Augment():
        return as_floats(images)
    x = images.float() / 255
    choice = strength = None
    if augment.rand:
        u = random_uniform(seed, epoch, indices, 2 * augment.rand, stream=_STREAMS["rand"])
        choice = (u[:, : augment.rand] * (_MOVES + len(TONES) + 1)).long()  # the last does nothing
        strength = (2 * u[:, augment.rand :] - 1) * augment.rand_strength
    if augment.moves:
        u = random_uniform(seed, epoch, indices, 10, stream=_STREAMS["move"])
        x = _resampled(x, _affine(augment, u, choice, strength, x.shape[2:]))
    if augment.colour:
        u = random_uniform(seed, epoch, indices, 3, stream=_STREAMS["colour"])
        factors = 1 + augment.colour * (2 * u.T[..., None, None, None] - 1)
        x = saturation(contrast(brightness(x, factors[0]), factors[1]), factors[2])
    if choice is not None and strength is not None:
        for i in range(augment.rand):
            x = apply_tones(x, choice[:, i] - _MOVES, strength[:, i])
    x = 2 * x - 1
    if augment.erase:
        x = _erased(x, augment.erase, seed, epoch, indices)
    return x


def partners(n: int, *, seed: int, epoch: Epoch, indices: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
    """Which of ``n`` examples each one is mixed with."""
    return random_integers(n, seed, epoch, indices, stream=_STREAMS["partner"])


def mix(
    images: Float[Tensor, "B C h w"],
    others: Float[Tensor, "B C h w"],
    augment: Augment,
    *,
    seed: int,
    epoch: Epoch,
    indices: Int[Tensor, " B"],
) -> MixedBatch:
    """Mix each image with its partner: mixup (Zhang et al., 2018) or cutmix (Yun et al., 2019).

    Where both are on, each image gets one of them, either as often as the other.
    """
    u = random_uniform(seed, epoch, indices, 5, stream=_STREAMS["mix"])
    none = u[:, 0] >= augment.mix
    cut = u[:, 1] < (0.5 if augment.mixup and augment.cutmix else float(augment.cutmix > 0))
    blend = _beta(u[:, 2], augment.mixup) if augment.mixup else torch.ones_like(u[:, 2])
    part = _beta(u[:, 2], augment.cutmix) if augment.cutmix else torch.ones_like(u[:, 2])
    h, w = images.shape[2:]
    side = (1 - part).sqrt()
    box = _boxes(side * h, side * w, u[:, 3], u[:, 4], h, w)  # (B, 1, h, w)
    cut_share = 1 - box.float().mean((1, 2, 3))
    share = torch.where(cut, cut_share, blend).masked_fill(none, 1.0)
    blend = blend.masked_fill(none | cut, 1.0)[:, None, None, None]
    box = box & (cut & ~none)[:, None, None, None]
    x = others + blend * (images - others)
    return MixedBatch(torch.where(box, others, x), share)


def _affine(
    augment: Augment, u: Tensor, choice: Tensor | None, strength: Tensor | None, sides: tuple[int, ...]
) -> Float[Tensor, "B 2 3"]:
    """From places in the result to places in the image, both from -1 to 1: where each pixel comes from."""
    h, w = sides
    signed = 2 * u - 1
    turn = signed[:, 0] * math.radians(augment.rotate)
    lean = signed[:, 1] * augment.shear
    lean_down = torch.zeros_like(lean)
    zoom = torch.exp(signed[:, 2] * math.log1p(augment.zoom))
    dx, dy = signed[:, 3] * augment.shift * 2, signed[:, 4] * augment.shift * 2
    if choice is not None and strength is not None:
        for i in range(choice.size(1)):
            chosen = [(choice[:, i] == n) * strength[:, i] for n in range(_MOVES)]
            turn = turn + chosen[0] * math.radians(30)
            lean, lean_down = lean + chosen[1] * 0.3, lean_down + chosen[2] * 0.3
            dx, dy = dx + chosen[3] * 0.6, dy + chosen[4] * 0.6
    if not augment.subpixel:
        dx, dy = (dx * w / 2).round() * (2 / w), (dy * h / 2).round() * (2 / h)
    area = 1 - u[:, 5] * (1 - augment.crop)
    ratio = torch.exp(signed[:, 6] * _RATIO * float(augment.crop < 1))
    wide, high = ((area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1))
    dx, dy = dx + signed[:, 7] * (1 - wide), dy + signed[:, 8] * (1 - high)
    mirror = torch.where(u[:, 9] < augment.flip, -1.0, 1.0)
    cos, sin = turn.cos() * zoom, turn.sin() * zoom
    rows = [
        torch.stack([mirror * wide * cos, high * (lean * cos - sin), dx], dim=1),
        torch.stack([mirror * wide * (sin + lean_down * cos), high * cos, dy], dim=1),
    ]
    return torch.stack(rows, dim=1)


def _resampled(x: Float[Tensor, "B C h w"], affine: Float[Tensor, "B 2 3"]) -> Float[Tensor, "B C h w"]:
    """Pixels from where the map says; beyond the edge is black."""
    grid = F.affine_grid(affine, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _erased(x: Tensor, chance: float, seed: int, epoch: Epoch, indices: Tensor) -> Float[Tensor, "B C h w"]:
    """Fill a rectangle of 2 to 33 % of the area with noise (Zhong et al., 2017)."""
    h, w = x.shape[2:]
    u = random_uniform(seed, epoch, indices, 5 + x[0].numel(), stream=_STREAMS["erase"])
    side = (0.02 + 0.31 * u[:, 1]).sqrt()
    ratio = torch.exp((2 * u[:, 2] - 1) * math.log(3) / 2)
    box = _boxes(side * ratio * h, side / ratio * w, u[:, 3], u[:, 4], h, w)
    box = box & (u[:, 0] < chance)[:, None, None, None]
    return torch.where(box, 2 * u[:, 5:].view_as(x) - 1, x)


def _boxes(high: Tensor, wide: Tensor, u: Tensor, v: Tensor, h: int, w: int) -> Shaped[Tensor, "B 1 h w"]:
    """True inside a rectangle for each image, whose middle lies anywhere; it is cut off at the edges."""
    rows, columns = torch.arange(h, device=u.device) + 0.5, torch.arange(w, device=u.device) + 0.5
    inside_rows = (rows - (u * h)[:, None]).abs() < high[:, None] / 2
    inside_columns = (columns - (v * w)[:, None]).abs() < wide[:, None] / 2
    return inside_rows[:, None, :, None] & inside_columns[:, None, None, :]


def _beta(u: Float[Tensor, " B"], alpha: float, steps: int = 1024) -> Float[Tensor, " B"]:
    """A number of the Beta(alpha, alpha) distribution for each uniform one, by its quantiles.

    The lower half is integrated over t = x^alpha, where the density is smooth; the upper mirrors it.
    """
    exact = torch.float32 if u.device.type == "mps" else torch.float64  # which mps has not
    t = torch.linspace(0, 0.5**alpha, steps, dtype=exact, device=u.device)  # there, not to wait for a copy
    density = (1 - t ** (1 / alpha)) ** (alpha - 1)
    sums = torch.cumulative_trapezoid(density, t)
    sums = (F.pad(sums, (1, 0)) / sums[-1] / 2).float()
    low = torch.minimum(u, 1 - u)
    right = torch.searchsorted(sums, low).clamp(1, steps - 1)
    before, after = sums[right - 1], sums[right]
    place = (right - 1 + (low - before) / (after - before)) * (0.5**alpha / (steps - 1))
    x = place.clamp(min=0) ** (1 / alpha)
    return torch.where(u < 0.5, x, 1 - x)
