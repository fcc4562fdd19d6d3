"""Without an extra every command works or names the extra; nothing ends in a traceback.

A package is taken away in a child of this process, by what Python does where it is not installed.
"""

import sys
from pathlib import Path

import pytest
import torch

from sightline.models.captioner import Captioner, CaptionerConfig
from tests.fuzz import preload
from tests.fuzz.lines import INPUTS, TINY
from tests.fuzz.sandbox import run

RUNS = Path(__file__).parent / "fixtures/written_by_0_1"
CLI = ("accelerate", "babel", "pyarrow", "pycocoevalcap", "sacrebleu", "sklearn", "tensorboard", "tokenizers",
       "transformers")  # fmt: skip
PLAIN = (*CLI, "jinja2", "matplotlib", "PIL", "rich", "safetensors", "typer")
SMALL = CaptionerConfig(vocab_size=13, image_size=20, patch=10, d_model=6, n_heads=2, n_layers=1, d_ff=7)

pytestmark = [
    pytest.mark.plain,
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


@pytest.fixture(autouse=True, scope="module")
def _imported():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    preload()
    yield
    torch.set_num_threads(threads)


def without(packages, call):
    """Call in a child in which some packages are not installed."""

    def child():
        for name in list(sys.modules):
            if name.partition(".")[0] in packages:
                sys.modules[name] = None
        for name in packages:
            sys.modules[name] = None
        call()

    return run(child)


def commands():
    for kind, inputs in INPUTS.items():
        folder = str(RUNS / kind / "finished")
        yield [kind, folder, *inputs]
        yield ["look", folder, inputs[0], "--json"]
        yield ["evaluate", folder, "--limit", "2", "--json"]
        yield ["check", folder]
        yield ["train", kind, *TINY[f"train {kind}"].split()]
    yield ["exercise"]


@pytest.mark.parametrize("words", list(commands()), ids=lambda words: " ".join(words[:2])[:20])
def test_the_command_line_alone(words, tmp_path):
    from sightline.cli import main

    more = ["--out", str(tmp_path / "run")] if words[0] == "train" else []
    outcome = without(CLI, lambda: main([*words, *more]))
    assert "Traceback" not in outcome.err
    named = "pip install 'sightline[" in outcome.err or "has no manifest.json" in outcome.err
    assert outcome.code == 0 or (outcome.code == 2 and named), outcome.err
    if words[0] in {"classify", "look"} and "classify" in words[1]:
        assert outcome.code == 0  # a classifier needs nothing further


@pytest.mark.parametrize("what", ["load", "save", "sight"])
def test_the_mechanism_alone(what, tmp_path):
    model, folder = Captioner(SMALL), RUNS / "caption/finished"

    def call():
        import sightline as sl

        if what == "load":
            Captioner.load(folder)
        elif what == "save":
            model.save(tmp_path / "run")
        else:
            sl.look(*torch.randn(3, 1, 5, 4)).save(tmp_path / "sight.safetensors")

    outcome = without(PLAIN, call)
    assert "needs safetensors, which is not installed; pip install 'sightline[look]'" in outcome.err
    assert not list(tmp_path.iterdir())
