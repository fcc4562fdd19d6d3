"""A saved page holds what Python says: every weight, the words, the image, the steps; without a browser."""

from pathlib import Path

import pytest
import torch
from torch import nn

import sightline as sl
from tests.command import run as command
from tests.contract.pages import data_of, told, unpacked
from tests.golden.written import same_as_written

RUNS = Path(__file__).parents[1] / "fixtures" / "written_by_0_1"
INPUTS = {
    "caption": RUNS / "data" / "pictures" / "00.png",
    "translate": "3 May 1999",
    "classify": RUNS / "data" / "digits" / "three" / "0.png",
}
WORDS = ["a", "few", "words", "<b>of</b>", "text"]


@pytest.fixture(scope="module", params=INPUTS)
def task(request):
    return request.param


@pytest.fixture(scope="module")
def run(task):
    return sl.open_run(RUNS / task / "finished", device="cpu")


@pytest.fixture(scope="module")
def prediction(run, task):
    return next(iter(run.predict([INPUTS[task]])))


def holds(stored, number, weights):
    """Check a layer of a page against weights, (H, T, S)."""
    found, step = unpacked(stored["layers"][number])
    assert step < 1e-4
    torch.testing.assert_close(found, weights.double(), rtol=0, atol=step)
    received, step = unpacked(stored["received"][number])
    assert received.numel() >= weights.size(-1)
    entropy, step = unpacked(stored["entropy"][number])
    assert entropy.numel() >= weights.size(-2)


def test_a_page_of_a_prediction(task, run, prediction, tmp_path):
    layers = run.layers(prediction)
    page = sl.show.page(prediction, layers=layers, steps=run.steps(prediction))
    page.save(tmp_path / "page.html")
    data = data_of((tmp_path / "page.html").read_text(encoding="utf-8"))
    meta, (stored,) = data["meta"], data["stored"]
    same_as_written(f"pages/{task}.json", told(meta))
    assert meta["title"] == prediction.text
    names = [sight["name"] for sight in meta["sights"]]
    assert names[1:] == list(layers)
    for number, name in enumerate(names[1:], 1):
        holds(stored, number, layers[name].weights[0])
    summary, step = unpacked(stored["layers"][0])
    torch.testing.assert_close(summary.mean(0), prediction.attention.summary.double(), rtol=0, atol=2 * step)


def test_the_page_of_a_command_is_that_of_python(task, run, prediction, tmp_path):
    page = tmp_path / "look.html"
    done = command("look", RUNS / task / "finished", INPUTS[task], "--out", page, "--device", "cpu")
    assert done.code == 0, done.err
    of_command = data_of(page.read_text(encoding="utf-8"))
    names = [sight["name"] for sight in of_command["meta"]["sights"]]
    layers = run.layers(prediction)
    assert set(layers) <= set(names)
    for name, attention in layers.items():
        holds(of_command["stored"][0], names.index(name), attention.weights[0])


def recorded(seed):
    """A layer's recording of a text of five words."""
    torch.manual_seed(seed)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(1, len(WORDS), 8)
    with torch.no_grad(), sl.watch(layer, keep=True, tokens=WORDS) as seen:
        layer(x)
    return seen


def test_a_page_of_a_recording():
    seen = recorded(0)
    data = data_of(sl.show.page(seen, title="a title").html())
    same_as_written("pages/recording.json", told(data["meta"]))
    assert data["meta"]["tokens"][0]["words"] == WORDS
    holds(data["stored"][0], 0, seen["self_attn"].rows(range(len(WORDS)))[0])


def test_a_page_of_two_recordings():
    before, after = recorded(0), recorded(1)
    data = data_of(sl.show.page(before, other=after, names=("one", "two")).html())
    same_as_written("pages/two recordings.json", told(data["meta"]))
    for stored, seen in zip(data["stored"], (before, after), strict=True):
        holds(stored, 0, seen["self_attn"].rows(range(len(WORDS)))[0])
