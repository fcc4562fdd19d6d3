"""A caption run of random weights, with the data it might have been trained on: for tests of runs."""

import csv

import torch
from PIL import Image

from sightline.data.tokens import Tokenizer
from sightline.models.captioner import Captioner, CaptionerConfig
from sightline.models.run_folder import write_config
from sightline.settings import as_json
from sightline.tasks.caption.data import CaptionData

LINES = ["a red dog sits on a big mat", "two <b>cats</b> & a man", "the small blue bird is here"]
SMALL = {
    "image_size": 24,
    "patch": 8,
    "d_model": 12,
    "n_heads": 3,
    "n_layers": 2,
    "d_ff": 14,
    "max_length": 7,
}


def make_data(folder, n=5):
    """A folder of noisy pictures with captions.csv, all of the test split."""
    folder.mkdir(parents=True)
    torch.manual_seed(1)
    with (folder / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["image", "caption", "split"])
        for i in range(n):
            pixels = torch.randint(0, 256, (29, 31, 3), dtype=torch.uint8).numpy()
            Image.fromarray(pixels).save(folder / f"{i}.png")
            for line in (LINES[i % 3], LINES[(i + 1) % 3]):
                table.writerow([f"{i}.png", line, "test"])
    return folder


def make_run(folder, data, *, lines=3, n_test=1000, **settings):
    """A run folder as the training leaves it."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.train(LINES[:lines], kind="word", vocab_size=50, lowercase=True)
    config = CaptionerConfig(vocab_size=len(tokenizer), **(SMALL | settings))
    folder.mkdir(parents=True)
    tokenizer.save(folder / "tokenizer.json")
    model = as_json(config)
    settings_of_data = as_json(CaptionData(source=str(data), n_train=3, n_val=3, n_test=n_test))
    write_config(folder, kind="caption", model=model, data=settings_of_data, train={})
    Captioner(config).save(folder)
    return folder
