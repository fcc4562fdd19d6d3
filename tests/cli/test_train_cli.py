import csv
import json
import sys

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from sightline.cli.fields import Group, settled, with_fields

from sightline.cli import main
from sightline.cli.train import CAPTION
from sightline.tasks.task import presets
from sightline.train.config import TrainConfig

TINY = [
    "--image-size",
    "16",
    "--patch",
    "8",
    "--d-model",
    "16",
    "--n-heads",
    "2",
    "--n-layers",
    "1",
    "--d-ff",
    "32",
    "--max-length",
    "9",
    "--epochs",
    "2",
    "--batch-size",
    "16",
    "--lr",
    "5e-3",
    "--no-tensorboard",
    "--device",
    "cpu",
]
COLOURS = ("red", "green", "blue")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    with (folder / "captions.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("image", "caption", "split"))
        for i in range(41):
            pixels = torch.randint(0, 99, (16, 16, 3), generator=torch.Generator().manual_seed(i))
            pixels[..., i % 3] += 150
            Image.fromarray(pixels.to(torch.uint8).numpy()).save(folder / f"{i}.png")
            for article in ("a", "the"):
                split = "val" if i % 5 == 0 else "train"
                table.writerow((f"{i}.png", f"{article} {COLOURS[i % 3]} picture", split))
    return folder


def sightline(*words):
    """Exit code of the command."""
    try:
        main([str(word) for word in words])
    except SystemExit as done:
        return done.code or 0
    return 0


def train(pictures, out, *words):
    return sightline("train", "caption", "--data", pictures, "--out", out, *TINY, *words)


def test_a_run_from_a_folder(pictures, tmp_path, capsys):
    out = tmp_path / "run"
    assert train(pictures, out) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{out}\n"
    assert "epoch 2/2" in printed.err
    assert {"config.json", "tokenizer.json", "model.safetensors", "metrics.csv", "checkpoints"} <= {
        path.name for path in out.iterdir()
    }
    config = json.loads((out / "config.json").read_text())
    assert config["kind"] == "caption"
    assert config["data"]["source"] == str(pictures)
    assert config["train"]["metric"] == "cider"  # the preset's, which no flag gave
    assert config["model"]["vocab_size"] == 4 + 6
    assert sorted(path.name for path in pictures.iterdir() if path.suffix != ".png") == ["captions.csv"]


def test_resume_needs_nothing_but_the_folder_and_changes_nothing(pictures, tmp_path, capsys):
    out = tmp_path / "run"
    assert train(pictures, out, "--model", "recurrent", "--d-hidden", "16") == 0
    before = (out / "model.safetensors").read_bytes()
    config = json.loads((out / "config.json").read_text())
    assert sightline("train", "caption", "--out", out, "--resume") == 0
    assert (out / "model.safetensors").read_bytes() == before
    assert json.loads((out / "config.json").read_text()) == config
    assert config["model"]["decoder"] == "recurrent"
    capsys.readouterr()
    assert sightline("train", "caption", "--out", out, "--resume", "--preset", "tiny") == 0
    assert json.loads((out / "config.json").read_text()) == config
    assert (
        "goes on as it was started: decoder stays 'recurrent', --preset tiny would" in capsys.readouterr().err
    )


def test_a_self_critical_stage_may_be_added_later(pictures, tmp_path):
    out = tmp_path / "run"
    assert train(pictures, out, "--look-layer", "none") == 0
    words = ["--self-critical", "--sc-epochs", "1", "--sc-samples", "2"]
    assert sightline("train", "caption", "--out", out, "--resume", *words) == 0
    config = json.loads((out / "config.json").read_text())
    assert config["train"]["stages"]["self-critical"]["samples"] == 2
    assert config["model"]["look_layer"] is None
    assert "reward" in (out / "metrics.csv").read_text().splitlines()[0]
    assert sightline("train", "caption", "--out", out, "--resume") == 0


def test_the_seed_fixes_the_run(pictures, tmp_path):
    weights = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        assert train(pictures, tmp_path / name, "--seed", seed) == 0
        weights.append(load_file(tmp_path / name / "model.safetensors")["decoder.words.weight"])
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--lr", "0"], "lr must be a positive number, got 0.0"),
        (["--lr", "fast"], "'fast' must be a number"),
        (["--preset", "phots"], "unknown preset 'phots' for caption"),
        (["--model", "transfomer"], "unknown decoder 'transfomer'"),
        (["--metric", "bleu5"], "unknown metric 'bleu5'"),
        (["--self-critical", "--sc-metric", "cidr"], "unknown metric 'cidr'"),
        (["--patch", "7"], "patch must divide image_size, got patch=7"),
        (["--val-beam", "0"], "val_beam must be at least 1, got 0"),
        (["--epochs", "none"], "'none' must be a whole number"),
    ],
)
def test_what_makes_no_sense(pictures, tmp_path, capsys, words, sentence):
    assert train(pictures, tmp_path / "run", *words) == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert sentence in said
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()


@pytest.mark.bad_input
def test_places_that_make_no_sense(pictures, tmp_path, capsys):
    assert sightline("train", "caption", "--out", tmp_path / "run") == 2
    assert "a training needs data" in capsys.readouterr().err
    assert train(tmp_path / "nowhere", tmp_path / "run") == 2
    assert "nowhere" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert train(tmp_path / "empty", tmp_path / "run") == 2
    assert "empty" in capsys.readouterr().err
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "0.png").write_bytes((pictures / "0.png").read_bytes())
    (alone / "captions.csv").write_text("image,caption,split\n0.png,a red picture,train\n")
    assert train(alone, tmp_path / "run") == 2
    assert "there is no image in the split 'val'" in capsys.readouterr().err
    assert train(pictures, pictures) == 2
    assert "is not empty" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.bad_input
def test_a_run_of_another_kind_or_with_other_settings(pictures, tmp_path, capsys):
    out = tmp_path / "run"
    assert train(pictures, out) == 0
    capsys.readouterr()
    assert sightline("train", "caption", "--out", out, "--resume", "--lr", "0.5") == 2
    assert "lr was 0.005 in" in capsys.readouterr().err
    for flag, name, before in (("--word-dropout", "word_dropout", "0.0"), ("--flip", "flip", "0.0")):
        assert sightline("train", "caption", "--out", out, "--resume", flag, "0.3") == 2
        assert f"{name} was {before} in" in capsys.readouterr().err
    config = out / "config.json"
    config.write_text(config.read_text().replace('"kind": "caption"', '"kind": "translate"'))
    assert sightline("train", "caption", "--out", out, "--resume") == 2
    assert "`sightline train translate --resume`" in capsys.readouterr().err


@pytest.mark.bad_input
def test_without_pycocoevalcap_there_is_a_sentence(pictures, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocoevalcap", None)
    assert train(pictures, tmp_path / "run") == 2
    assert "the metric 'cider' needs pycocoevalcap" in capsys.readouterr().err
    assert train(pictures, tmp_path / "run", "--metric", "loss") == 0


@pytest.mark.bad_input
def test_no_space_left(pictures, tmp_path, capsys, monkeypatch):
    """The system's own words, where a checkpoint is written; what was there before is still there."""

    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sightline.train.checkpoint._write", full)
    assert train(pictures, tmp_path / "run") == 2
    said = capsys.readouterr().err
    assert "no space left on device; none was written before: make room and go on with --resume" in said
    monkeypatch.undo()
    assert sightline("train", "caption", "--out", tmp_path / "run", "--resume") == 0


def test_flags_show_their_help_and_default(capsys):
    assert sightline("train", "caption", "--help") == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for words in ("--weight-decay", "--sc-samples", "--word-dropout", "--crop", "Self-critical stage"):
        assert words in text
    assert "Parts that a batch is computed in" in text


@pytest.mark.parametrize("name", sorted(presets("caption")))
def test_every_preset_is_made_of_settings(name):
    settings = settled(CAPTION, presets("caption")[name])
    assert settings["train"].metric in {"bleu4", "cider", "loss"}


def test_settings_are_layered():
    group = Group(part="train", kind=TrainConfig, title="Training")
    settings = settled([group], {"train": {"lr": 1.0, "epochs": 3}}, {"train": {"epochs": 5, "clip": None}})
    assert settings["train"] == TrainConfig(lr=1.0, epochs=5, clip=None)


@pytest.mark.bad_input
def test_two_fields_are_never_one_flag():
    group = Group(part="train", kind=TrainConfig, title="Training")
    with pytest.raises(ValueError, match="the flag 'epochs' of 'Training' is there twice"):
        with_fields([group, group])(lambda given: None)
