import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from sightline.models.captioner import Captioner, CaptionerConfig
from sightline.models.manifest import write_manifest
from sightline.models.run_folder import SaveableModel, kind_of, read_config, write_config

CONFIG = CaptionerConfig(vocab_size=13, image_size=20, patch=10, d_model=6, n_heads=2, n_layers=1, d_ff=7)


def test_a_model_comes_back_as_it_was(tmp_path):
    model = Captioner(CONFIG)
    model.save(tmp_path / "run")
    again = Captioner.load(tmp_path / "run")
    assert again.config == CONFIG
    assert not again.training
    for (name, old), (same, new) in zip(model.state_dict().items(), again.state_dict().items(), strict=True):
        assert name == same
        assert torch.equal(old, new)
    images, ids = torch.randn(2, 3, 20, 20), torch.ones(2, 3, dtype=torch.long)
    assert torch.equal(model.eval()(images, ids), again(images, ids))
    assert kind_of(tmp_path / "run") == "caption"
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "config.json",
        "manifest.json",
        "model.safetensors",
    ]


def test_saving_keeps_what_else_the_config_says(tmp_path):
    write_config(tmp_path, kind="caption", model={}, data={"source": "scenes"}, train={"lr": 0.1})
    Captioner(CONFIG).save(tmp_path)
    config = read_config(tmp_path)
    assert config["data"] == {"source": "scenes"}
    assert config["train"] == {"lr": 0.1}
    assert config["model"]["d_model"] == 6
    assert config["version"]
    assert Captioner.load(tmp_path).config == CONFIG


class Other(SaveableModel):
    kind = "translate"
    Config = CaptionerConfig


@pytest.mark.bad_input
def test_a_run_of_another_kind(tmp_path):
    Captioner(CONFIG).save(tmp_path)
    with pytest.raises(ValueError, match="kind 'caption', expected 'translate'"):
        Other.load(tmp_path)
    other = Other()
    other.config = CONFIG
    with pytest.raises(ValueError, match="kind 'caption', expected 'translate'"):
        other.save(tmp_path)
    assert kind_of(tmp_path) == "caption"


@pytest.mark.bad_input
def test_files_that_are_missing_or_damaged(tmp_path):
    with pytest.raises(FileNotFoundError, match="has none"):
        Captioner.load(tmp_path)
    Captioner(CONFIG).save(tmp_path)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    for size in (0, 3, 100, len(whole) - 1):
        weights.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=f"damaged.*has {size} bytes"):
            Captioner.load(tmp_path)
    weights.unlink()
    with pytest.raises(FileNotFoundError, match=r"weights in model\.safetensors.* --resume"):
        Captioner.load(tmp_path)
    config = tmp_path / "config.json"
    for text, words in (("{", "is not JSON"), ("[]", "has a kind and a model"), ('{"kind": "x"}', "has not")):
        config.write_text(text)
        with pytest.raises(ValueError, match=words):
            kind_of(tmp_path)
    config.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is not JSON"):
        kind_of(tmp_path)


@pytest.mark.bad_input
def test_weights_of_another_run(tmp_path):
    Captioner(CONFIG).save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["decoder.bias"]
    save_file(tensors, tmp_path / "model.safetensors")
    write_manifest(tmp_path)
    with pytest.raises(ValueError, match=r"don't fit.*decoder\.bias"):
        Captioner.load(tmp_path)


@pytest.mark.bad_input
def test_a_setting_that_is_not_known(tmp_path):
    Captioner(CONFIG).save(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["model"]["d_modell"] = config["model"].pop("d_model")
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"unknown setting 'd_modell'.*did you mean 'd_model'"):
        Captioner.load(tmp_path)


@pytest.mark.bad_input
def test_what_can_not_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    model = Captioner(CONFIG)
    model.save(tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    from safetensors import SafetensorError

    def full(tensors, path):
        path.write_bytes(b"half")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(OSError, match="No space left on device"):
        model.save(tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2  # nothing vouches for a folder that was left half written
