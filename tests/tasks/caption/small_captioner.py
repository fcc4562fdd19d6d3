"""A small caption set: noise with a bright part, its colour and where it is; and a captioner for it."""

import torch

from sightline.data.captions import CaptionedImage, CaptionSet
from sightline.data.images import BrokenImage
from sightline.models.captioner import Captioner, CaptionerConfig
from sightline.tasks.caption.data import CaptionData, learn_tokens
from sightline.tasks.caption.objective import CaptionObjective
from sightline.train.config import TrainConfig

CPU = torch.device("cpu")
TRAIN = TrainConfig(device="cpu", epochs=2, batch_size=16, lr=5e-3, tensorboard=False, threads=0)
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


def made(decoder="transformer", *, captions=None, train=TRAIN, score=None, data=None, **model):
    captions = captions or small_set()
    data = data or CaptionData(source="small")
    tokenizer = learn_tokens(captions, data)
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 32, "d_hidden": 16, "dropout": 0.0}
    config = CaptionerConfig(
        vocab_size=len(tokenizer), image_size=16, patch=8, max_length=9, decoder=decoder, **{**sizes, **model}
    )
    torch.manual_seed(0)
    task = CaptionObjective(captions, tokenizer, config, train, data, score=score)
    return Captioner(config), task


def prepared(*args, **options):
    model, task = made(*args, **options)
    task.prepare(CPU)
    return model, task
