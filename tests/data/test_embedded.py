"""The sets that come along are what they were, and what is made of them and of pictures is said in full."""

import hashlib
import json

import pytest
import torch
from PIL import Image

import sightline as sl
from tests.command import run
from tests.data.recorded import recorded

KEPT = {  # the kind of its task, its digest, and its examples by their splits
    "dates": (
        "translate",
        "11e90ee934fa",
        {"train": "52c1bb9d17e65d5c", "val": "9621f0d2eea3d3a2", "test": "07b9d649e36c7bd2"},
    ),
    "digits": (
        "classify",
        "b977e5b255ef",
        {"train": "97d6ddcc87510d80", "val": "9dd844747ebe226e", "test": "8cf6f1a393d9ad33"},
    ),
}


def sha(rows):
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", KEPT)
def test_a_set_has_the_examples_it_had(name):
    kind, digest, rows = KEPT[name]
    found = recorded(name, kind)
    assert found["digest"] == digest
    assert {split: sha(some) for split, some in found["rows"].items()} == rows


SMALL = {
    "d_model": 4,
    "n_heads": 1,
    "n_layers": 1,
    "d_ff": 4,
    "steps": 1,
    "tensorboard": False,
    "shown": False,
}


def test_an_image_is_its_file_its_pixels_and_is_made_to_fit(tmp_path):
    torch.manual_seed(3)
    model = sl.tasks.train("classify", data="digits", out=tmp_path / "run", device="cpu", patch=4, **SMALL)
    pixels = torch.randint(0, 256, (1, 8, 8), dtype=torch.uint8)
    large = pixels.repeat_interleave(5, 1).repeat_interleave(5, 2)
    Image.fromarray(pixels[0].numpy()).save(tmp_path / "small.png")
    given = [pixels, tmp_path / "small.png", pixels.expand(3, 8, 8), large]
    first, *others = [next(iter(model.predict([one]))) for one in given]
    for other in others:
        assert other.text == first.text
        assert other.score == pytest.approx(first.score, abs=1e-3)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda place: place, "an image is a file, .* is a folder"),
        (lambda _: torch.zeros(8, 8), "uint8 of shape"),
        (lambda _: torch.zeros(2, 8, 8, dtype=torch.uint8), "uint8 of shape"),
        (lambda _: torch.zeros(1, 0, 8, dtype=torch.uint8), "uint8 of shape"),
        (lambda _: 7, "by its path, or by its pixels"),
        (lambda place: place / "none.png", "there is no image"),
    ],
    ids=["folder", "floats", "two colours", "empty", "number", "nowhere"],
)
def test_what_is_no_image_is_refused(tmp_path, given, words):
    model = sl.open_run(_run(tmp_path))
    with pytest.raises((ValueError, FileNotFoundError, TypeError), match=words):
        list(model.predict([given(tmp_path)]))


def _run(place):
    sl.tasks.train("classify", data="digits", out=place / "run", device="cpu", patch=4, **SMALL)
    return place / "run"


def test_captions_of_scenes_are_scored_by_what_is_in_them(tmp_path):
    sizes = {"n_train": 12, "n_val": 3, "n_test": 3, "image_size": 24, "patch": 8, "max_length": 9, **SMALL}
    out = tmp_path / "run"
    sl.tasks.train("caption", data="scenes", preset="default", out=out, device="cpu", **sizes)
    found = run("evaluate", out, "--json", "--limit", "3").json
    text = json.dumps(found)
    assert all(name in text for name in ("attribute_accuracy", "grounding", "grounding_chance"))
    references = [x.references for x in sl.open_run(out).evaluate("test").predictions]
    assert all(len(some) > 1 and all(isinstance(x, str) for x in some) for some in references)
