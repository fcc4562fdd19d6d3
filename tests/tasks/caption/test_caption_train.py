"""Training a captioner from a folder: what only captioning has; the rest is the contract of all tasks."""

import csv
import json
import logging

import pytest
import torch
from PIL import Image

from sightline.models.captioner import DECODERS, CaptionerConfig
from sightline.tasks.caption import CAPTION
from sightline.tasks.configure import Request, configure
from sightline.tasks.training import train

COLOURS = ("red", "green", "blue")
TINY = {
    "image_size": 16,
    "patch": 8,
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 32,
    "max_length": 9,
    "epochs": 2,
    "batch_size": 16,
    "lr": 5e-3,
    "tensorboard": False,
    "device": "cpu",
}


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


def train_tiny(pictures, out, **settings):
    return train("caption", data=pictures, out=out, shown=False, **(TINY | settings))


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def test_a_run_from_a_folder(pictures, tmp_path):
    run = train_tiny(pictures, tmp_path / "run")
    assert run.config["data"]["source"] == str(pictures)
    assert run.config["train"]["metric"] == "cider"  # the preset's, which nobody gave
    assert run.config["model"]["vocab_size"] == 4 + 6
    assert sorted(path.name for path in pictures.iterdir() if path.suffix != ".png") == ["captions.csv"]
    (p,) = run.predict([pictures / "0.png"])
    assert p.attention.keys.rows == 2


def test_a_self_critical_stage_may_be_added_later(pictures, tmp_path):
    out = tmp_path / "run"
    train_tiny(pictures, out, look_layer=None)
    train("caption", out=out, resume=True, self_critical=True, sc_epochs=1, sc_samples=2, shown=False)
    config = config_of(out)
    assert config["train"]["stages"]["self-critical"]["samples"] == 2
    assert config["model"]["look_layer"] is None
    assert "reward" in (out / "metrics.csv").read_text().splitlines()[0]
    train("caption", out=out, resume=True, shown=False)
    assert config_of(out) == config


def test_the_other_decoder_and_a_preset_that_is_not_read(pictures, tmp_path, caplog):
    out = tmp_path / "run"
    train_tiny(pictures, out, model="recurrent", d_hidden=16)
    assert config_of(out)["model"]["decoder"] == "recurrent"
    before = (out / "model.safetensors").read_bytes()
    with caplog.at_level(logging.INFO, "sightline"):
        train("caption", out=out, resume=True, preset="tiny", shown=False)
    assert "goes on as it was started: " in caplog.text
    assert config_of(out)["model"]["decoder"] == "recurrent"
    assert (out / "model.safetensors").read_bytes() == before


def test_the_sample_is_an_image_that_was_not_trained_on(pictures, tmp_path):
    settings = configure(
        CAPTION, Request(data=str(pictures), fields={"model": {"image_size": 16, "patch": 8}})
    )
    assert CAPTION.prepare(settings, None).sample == str(pictures / "0.png")
    settings = configure(
        CAPTION, Request(data="scenes", fields={"data": {"n_train": 3, "n_val": 2, "n_test": 0}})
    )
    assert CAPTION.prepare(settings, None).sample.shape[0] == 3  # drawn: the image itself, to be saved


def test_few_photos_are_gone_through_often_unless_somebody_counts(pictures):
    def training(**fields):
        return configure(CAPTION, Request(data=str(pictures), fields={"train": fields}))["train"]

    assert training().min_steps == 1000
    assert training(batch_size=8).min_steps == 1000
    assert training(epochs=2).min_steps is None
    assert training(steps=2).min_steps is None
    assert training(epochs=2, min_steps=7).min_steps == 7


def test_the_self_critical_stage_counts_its_own_epochs(pictures):
    request = Request(data=str(pictures), parts=frozenset({"self_critical"}))
    settings = configure(CAPTION, request)
    assert settings["train"].min_steps == 1000
    assert settings["self_critical"].training(settings["train"]).min_steps is None


def test_the_embedded_set_takes_its_own_preset():
    assert configure(CAPTION, Request(data="scenes"))["data"].n_train == 32_000


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("name", sorted(CAPTION.presets))
def test_every_preset_suits_both_decoders(name, decoder):
    settings = configure(CAPTION, Request(data="scenes", preset=name, architecture=decoder))
    assert isinstance(settings["model"], CaptionerConfig)
    assert settings["model"].decoder == decoder
    assert settings["train"].metric in CAPTION.metrics


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"model": "transfomer"}, "unknown model 'transfomer'"),
        ({"self_critical": True, "sc_metric": "cidr"}, "unknown metric 'cidr' of the self-critical stage"),
        ({"sc_batch_size": 3}, "--sc-batch-size is for the self-critical stage, which was not asked for"),
        ({"self_critical": True, "sc_epochs": 0}, "self-critical stage: epochs must be at least 1, got 0"),
        ({"self_critical": True, "sc_draw": "lots"}, "self-critical stage: unknown draw 'lots'"),
        ({"patch": 7}, "patch must divide image_size, got patch=7"),
        ({"vocabulary": 3}, "vocabulary must be above 4, got 3"),
        ({"cached": True, "finetune": True}, "give up one: --no-cached or --no-finetune"),
        ({"mixup": 0.5}, "unknown setting 'mixup' of caption"),
    ],
)
def test_settings_that_make_no_sense(pictures, tmp_path, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        train_tiny(pictures, tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()
