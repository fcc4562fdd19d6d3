"""Changes of colour and tone, a strength for each image; on floats in [0, 1], on any device."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.shapes import Float, Int

__all__ = ["TONES", "apply_tones", "brightness", "contrast", "grey", "saturation"]

TONES = ("brightness", "contrast", "saturation", "sharpness", "posterise", "solarise", "autocontrast")
_LUMA = (0.299, 0.587, 0.114)

Images = Float[Tensor, "B C h w"]
Strength = Float[Tensor, "B 1 1 1"]


def grey(images: Images) -> Float[Tensor, "B 1 h w"]:
    """How light each pixel is: the usual weights of red, green and blue; a grey image as it is.

    Example:
        >>> grey(torch.ones(1, 3, 1, 1)).item()
        1.0
    """
    if images.size(1) == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    return _LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue


def brightness(images: Images, factor: Strength) -> Images:
    """Black at 0, as it was at 1."""
    return (images * factor).clamp(0, 1)


def contrast(images: Images, factor: Strength) -> Images:
    """Flat grey at 0, as it was at 1."""
    return _blend(grey(images).mean((1, 2, 3), keepdim=True), images, factor)


def saturation(images: Images, factor: Strength) -> Images:
    """Grey at 0, as it was at 1; nothing to do for images that are grey."""
    return images if images.size(1) == 1 else _blend(grey(images), images, factor)


def apply_tones(images: Images, which: Int[Tensor, " B"], strength: Float[Tensor, " B"]) -> Images:
    """Change each image by one of ``TONES``, or by none where the number is out of their range.

    Args:
        images: In [0, 1].
        which: A place in ``TONES`` for each image.
        strength: -1 to 1 for each: less or more of it; where there is no less, its size counts.
    """
    s = strength.view(-1, 1, 1, 1)
    factor, size = 1 + 0.9 * s, s.abs()
    variants: Sequence[Images] = (
        brightness(images, factor),
        contrast(images, factor),
        saturation(images, factor),
        _sharpness(images, factor),
        _posterise(images, size),
        torch.where(images <= 1 - size, images, 1 - images),  # solarise
        _autocontrast(images),
    )
    for i, variant in enumerate(variants):
        images = torch.where((which == i).view(-1, 1, 1, 1), variant, images)
    return images


def _sharpness(images: Images, factor: Strength) -> Images:
    """Blurred at 0 by a window of 3 x 3 whose middle counts five times."""
    around = F.avg_pool2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    return _blend((9 * around + 4 * images) / 13, images, factor)


def _posterise(images: Images, size: Strength) -> Images:
    """8 bits a colour at size 0, 4 at 1."""
    levels = torch.exp2((8 - 4 * size).round())
    return ((images * levels).floor() / (levels - 1)).clamp(0, 1)


def _autocontrast(images: Images) -> Images:
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    return torch.where(high > low, (images - low) / (high - low).clamp_min(1e-6), images)


def _blend(at_zero: Tensor, at_one: Images, factor: Strength) -> Images:
    return (at_zero + (at_one - at_zero) * factor).clamp(0, 1)
