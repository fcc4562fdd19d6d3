import json

import pytest
import torch
from safetensors.torch import load_file

from sightline.models.rnn import RecurrentConfig
from sightline.models.run_folder import read_config
from sightline.tasks.translate.data import TranslateData
from sightline.tasks.translate.prepare import train_translator
from sightline.train.config import TrainConfig

LINES = {"train": 13, "val": 3}


@pytest.fixture
def folder(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for split, n in LINES.items():
        for language in ("en", "de"):
            text = "".join(f"{language} {split} {i}\n" for i in range(n))
            (data / f"{split}.{language}").write_text(text)
    return data


def trained(folder, out, *, shown=False, resume=False, **data):
    return train_translator(
        TranslateData(**({"place": str(folder), "tokens": "char"} | data)),
        RecurrentConfig(d_model=7, d_attn=5),
        TrainConfig(epochs=1, batch_size=5, tensorboard=False, device="cpu"),
        out,
        score=None,
        resume=resume,
        shown=shown,
    )


def languages(run):
    data = read_config(run)["data"]
    return data["source"], data["target"]


def test_a_run_keeps_the_languages_it_learned(folder, tmp_path):
    out = trained(folder, tmp_path / "run")
    assert languages(out) == ("de", "en"), "by the alphabet, where nothing was said"
    trained(folder, out, resume=True)
    assert languages(out) == ("de", "en")
    assert languages(trained(folder, tmp_path / "turned", source="en")) == ("en", "de")


def test_a_run_that_kept_no_languages_goes_on(folder, tmp_path):
    out = trained(folder, tmp_path / "run")
    config = json.loads((out / "config.json").read_text())
    config["data"] |= {"source": None, "target": None}
    (out / "config.json").write_text(json.dumps(config))
    trained(folder, out, resume=True)
    assert languages(out) == (None, None)


def test_the_embedded_set_has_languages_too(tmp_path):
    sizes = {"n_train": 17, "n_val": 3, "n_test": 2}
    assert languages(trained("dates", tmp_path / "run", **sizes)) == ("date", "iso")


def test_the_seed_alone_decides_the_weights(folder, tmp_path):
    weights = []
    for before in (1, 2):
        torch.manual_seed(before)
        out = trained(folder, tmp_path / f"run{before}")
        weights.append(load_file(out / "model.safetensors"))
    assert all(torch.equal(weights[0][name], tensor) for name, tensor in weights[1].items())


def test_a_training_says_what_is_learned_from_what(folder, tmp_path, capsys, monkeypatch):
    trained(folder, tmp_path / "run", shown=True)
    told = capsys.readouterr().err
    assert told.startswith("de to en: 13 pairs to learn from, 3 to choose by\n")
    assert "unknown" not in told
    monkeypatch.setenv("RANK", "1")
    trained(folder, tmp_path / "second", shown=True)
    assert "pairs to learn from" not in capsys.readouterr().err, "the first process says it"


def test_letters_that_a_vocabulary_lacks_are_told(folder, tmp_path, capsys):
    trained(folder, tmp_path / "run", shown=True, tokens="bpe", vocabulary=11)
    told = [line for line in capsys.readouterr().err.splitlines() if "unknown" in line]
    assert len(told) == 2
    assert "% of the source's tokens are unknown: " in told[0]
    assert told[1].endswith("than a vocabulary of 11 holds; raise --vocabulary, or take --tokens char")


@pytest.mark.bad_input
def test_a_training_without_a_split_to_choose_by_is_refused_with_a_remedy(folder, tmp_path):
    (folder / "val.en").unlink()
    (folder / "val.de").unlink()
    with pytest.raises(
        ValueError, match=r"no split 'val' in .*, but 'train'; put some into val\.de and val\.en"
    ):
        trained(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["n_train", "n_val", "n_test"])
def test_an_embedded_set_without_a_date_is_refused_by_its_setting(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        TranslateData(**{name: 0})
