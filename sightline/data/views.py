"""Numbered views of a picture, for an encoder that sees each once and never again.

0 is the middle square, 1 the same mirrored, and from 2 on random crops, of a third of the picture at least,
mirrored by chance; each is a function of its number and the picture's content.
"""

import random

import torch.nn.functional as F
from torch import Tensor

from sightline.data.batches import seed_of
from sightline.data.images import resize_crop
from sightline.shapes import Shaped

__all__ = ["view_of"]

_LEAST_AREA = 1 / 3


def view_of(
    image: Shaped[Tensor, "3 h w"], view: int, size: int, *, digest: str = ""
) -> Shaped[Tensor, "3 size size"]:
    """A picture in one of its views: 0 the middle square, 1 that mirrored, from 2 on a random crop.

    Example:
        >>> picture = torch.arange(12, dtype=torch.uint8).reshape(1, 3, 4).expand(3, 3, 4)
        >>> view_of(picture, 0, 3)[0, 0], view_of(picture, 1, 3)[0, 0]
        (tensor([0, 1, 2], dtype=torch.uint8), tensor([2, 1, 0], dtype=torch.uint8))
    """
    if view < 2:
        square = resize_crop(image, size)
        return square.flip(-1) if view else square
    chance = random.Random(seed_of("view", view, digest))  # noqa: S311
    height, width = image.shape[1:]
    area = chance.uniform(_LEAST_AREA, 1.0) * height * width
    ratio = (4 / 3) ** chance.uniform(-1, 1)
    tall, wide = min(height, round((area / ratio) ** 0.5)), min(width, round((area * ratio) ** 0.5))
    top, left = chance.randint(0, height - tall), chance.randint(0, width - wide)
    crop = image[:, top : top + tall, left : left + wide]
    scaled = F.interpolate(crop[None].float(), size=(size, size), mode="bicubic", antialias=True)[0]
    scaled = scaled.round_().clamp_(0, 255).to(image.dtype)
    return scaled.flip(-1) if chance.random() < 0.5 else scaled
