"""Runs and folders as the page asks them."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import sightline as sl
from sightline.data.images import open_image
from sightline.serve.limits import Limits
from sightline.serve.model import open_model
from tests.serve.conftest import png

FIXTURES = Path(__file__).parents[1] / "fixtures" / "written_by_0_1"
IMAGES = ["caption", "caption-self-critical", "classify", "classify-folder"]
TEXTS = ["translate", "translate-recurrent"]


def run_of(name):
    return FIXTURES / name / "finished"


@pytest.mark.parametrize("name", IMAGES)
def test_a_run_looks_at_an_upload_as_at_the_file(name, tmp_path):
    model = open_model(run_of(name))
    path = tmp_path / "a.png"
    path.write_bytes(png(37, 29))
    result = model.look(path.read_bytes(), Limits())
    (expected,) = sl.open_run(run_of(name)).predict([path])
    assert (result.text, model.takes) == (expected.text, "image")
    assert result.score == pytest.approx(expected.score)
    meta = result.answers.meta()
    assert (meta["image"]["rows"], meta["image"]["columns"]) == (
        expected.attention.keys.rows,
        expected.attention.keys.columns,
    )
    row = result.answers.answer({"ask": "row", "sight": 0, "head": "mean", "query": 0})
    assert next(x for x in row.values() if isinstance(x, dict))["shape"][
        -1
    ] == expected.attention.summary.size(-1)
    assert len(result.alternatives) > 1
    assert result.nbytes > 0


@pytest.mark.parametrize("name", ["caption", "translate"])
def test_a_word_is_seen_in_every_head_that_looks_where_the_summary_does(name):
    model = open_model(run_of(name))
    result = model.look(png() if model.takes == "image" else "1", Limits())
    heads = result.answers.answer({"ask": "word", "sight": 0, "query": 0})["heads"]
    sights, config = result.answers.meta()["sights"], model.run.model.config
    crossing = [head for i, head in heads if sights[i]["name"].endswith("multihead_attn")]
    assert crossing == list(range(config.n_heads)) * config.n_layers


@pytest.mark.parametrize("name", TEXTS)
def test_a_run_reads_a_text(name):
    model = open_model(run_of(name))
    text = next(x.label for x in model.examples() if model.run.predictor.tokens.unknown(x.label) is None)
    result = model.look(text, Limits())
    (expected,) = sl.open_run(run_of(name)).predict([text])
    assert (result.text, model.takes) == (expected.text, "text")
    with pytest.raises(ValueError, match="no token for the character"):
        model.look("\u2603 7", Limits())
    n = len(model.run.predictor.read([text])[0].value)
    with pytest.raises(ValueError, match=f"may have {n - 1} tokens, got {n}"):
        model.look(text, Limits(tokens=n - 1))
    assert model.look(text, Limits(tokens=n)).text == expected.text


@pytest.mark.parametrize("name", ["caption", "classify", "translate"])
def test_examples_are_of_the_part_kept_aside(name):
    model = open_model(run_of(name))
    examples = model.examples()
    assert 1 <= len(examples) <= 8
    assert all((x.image is not None) == (model.takes == "image") for x in examples)
    assert len({x.label for x in examples}) == len(examples)


def test_examples_that_lie_with_a_run_stand_in_for_data_that_is_gone(tmp_path):
    shutil.copytree(run_of("classify-folder"), tmp_path / "run")
    (tmp_path / "run" / "sample.png").write_bytes(png())
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["data"]["source"] = str(tmp_path / "gone")
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    (example,) = open_model(tmp_path / "run").examples()
    assert (example.label, example.image) == ("sample", png())


def test_pixels_are_an_input_like_a_file():
    run = sl.open_run(run_of("caption"))
    pixels = torch.randint(256, (3, 41, 53), dtype=torch.uint8)
    (prediction,) = run.predict([pixels])
    size = run.model.config.image_size
    assert prediction.attention.keys.image.shape == (3, size, size)
    (grey,) = run.predict([pixels[:1]])
    assert grey.text


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (torch.zeros(3, 4, 5), r"uint8 of shape \(1 or 3, h, w\), got torch.float32 of shape \(3, 4, 5\)"),
        (torch.zeros(2, 4, 5, dtype=torch.uint8), r"got torch.uint8 of shape \(2, 4, 5\)"),
        (torch.zeros(3, 0, 5, dtype=torch.uint8), r"got torch.uint8 of shape \(3, 0, 5\)"),
        (7, "by its path, or by its pixels as a tensor, got int"),
    ],
)
def test_what_is_no_image_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        open_image(given, 8)
