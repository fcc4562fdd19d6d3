"""A caption set of a second: noise with a bright part, and what colour it has and where it is."""

import torch

from sightline.data.captions import CaptionedImage, CaptionSet
from sightline.data.images import BrokenImage

COLOURS = ("red", "green", "blue")
PLACES = ("left", "right", "top")


class Noise:
    def __init__(self, broken=()):
        self.broken = broken

    def open(self, name, *, size=None):
        i = int(name)
        if i in self.broken:
            raise BrokenImage(f"the image {name!r} can't be read: it is text")
        image = torch.randint(
            0, 60, (3, 16, 16), generator=torch.Generator().manual_seed(i), dtype=torch.uint8
        )
        part = (slice(None), slice(8)), (slice(None), slice(8, None)), (slice(8), slice(None))
        image[(i % 3, *part[i // 3 % 3])] += 150
        return image

    def digest(self, name):
        return name


def small_set(n=90, broken=()):
    records = [
        CaptionedImage(
            str(i),
            tuple(f"{a} {COLOURS[i % 3]} part at the {PLACES[i // 3 % 3]}" for a in ("A", "The", "One"))[
                : 1 + i % 3
            ],
            "val" if i % 7 == 0 else "train",
        )
        for i in range(n)
    ]
    return CaptionSet(records, Noise(broken), source="small")
