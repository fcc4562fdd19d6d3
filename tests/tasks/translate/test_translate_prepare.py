"""From settings to a trained translator in its run folder."""

import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from sightline.data.pair_set import Pair
from sightline.models.rnn import RecurrentConfig, RecurrentTranslator
from sightline.models.run_folder import read_config
from sightline.models.translator import Translator, TranslatorConfig
from sightline.settings import from_json
from sightline.tasks.configure import Request, configure
from sightline.tasks.training import train
from sightline.tasks.translate import TRANSLATE
from sightline.tasks.translate.data import TranslateData, open_pairs, train_tokenizers
from sightline.tasks.translate.prepare import ALPHAS, prepare_translator, tune_length_penalty
from sightline.train.config import TrainConfig
from tests.tasks.edited_runs import drop_records

LINES = {"train": 13, "val": 3}
SMALL = {"epochs": 1, "batch_size": 5, "tensorboard": False, "device": "cpu", "tokens": "char"}


@pytest.fixture
def pairs_folder(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for split, n in LINES.items():
        for language in ("en", "de"):
            text = "".join(f"{language} {split} {i}\n" for i in range(n))
            (data / f"{split}.{language}").write_text(text)
    return data


def trained(data, out, **settings):
    settings = {**SMALL, "model": "recurrent", "d_model": 7, "d_attn": 5, "metric": "loss"} | settings
    train("translate", data=data, out=out, shown=False, **settings)
    return out


def prepared(data, **settings):
    fields = {"data": {"tokens": "char"} | settings, "model": {"d_model": 8, "n_heads": 2, "d_ff": 12}}
    return prepare_translator(configure(TRANSLATE, Request(data=str(data), fields=fields)), None)


def languages(run):
    data = read_config(run)["data"]
    return data["source"], data["target"]


def test_a_run_keeps_the_languages_it_learned(pairs_folder, tmp_path):
    out = trained(pairs_folder, tmp_path / "run")
    assert languages(out) == ("de", "en"), "by the alphabet, where nothing was said"
    trained(pairs_folder, out, resume=True)
    assert languages(out) == ("de", "en")
    assert languages(trained(pairs_folder, tmp_path / "turned", source="en")) == ("en", "de")


def test_a_run_that_kept_no_languages_goes_on(pairs_folder, tmp_path):
    out = trained(pairs_folder, tmp_path / "run")
    config = json.loads((out / "config.json").read_text())
    config["data"] |= {"source": None, "target": None}
    (out / "config.json").write_text(json.dumps(config))
    drop_records(out)
    trained(pairs_folder, out, resume=True)
    assert languages(out) == (None, None)


def test_the_embedded_set_has_languages_too(tmp_path):
    sizes = {"n_train": 17, "n_val": 3, "n_test": 2}
    assert languages(trained("dates", tmp_path / "run", **sizes)) == ("date", "iso")


def test_the_seed_alone_decides_the_weights(pairs_folder, tmp_path):
    weights = []
    for before in (1, 2):
        torch.manual_seed(before)
        out = trained(pairs_folder, tmp_path / f"run{before}")
        weights.append(load_file(out / "model.safetensors"))
    assert all(torch.equal(weights[0][name], tensor) for name, tensor in weights[1].items())


def test_a_training_says_what_is_learned_from_what(pairs_folder):
    assert prepared(pairs_folder).notes == ["de to en: 13 pairs to learn from, 3 to choose by"]


def test_letters_that_a_vocabulary_lacks_are_told(pairs_folder):
    _, *notes = prepared(pairs_folder, tokens="bpe", vocabulary=11).notes
    assert len(notes) == 2
    assert "% of the source's tokens are unknown: " in notes[0]
    assert notes[1].endswith("than a vocabulary of 11 holds; raise --vocabulary, or take --tokens char")


def test_the_sample_is_a_sentence_of_val_that_the_vocabulary_holds(pairs_folder):
    (pairs_folder / "val.de").write_text("de 漢\nde train 漢 1\nde train 2\n")
    assert prepared(pairs_folder).sample == "de train 2"


def test_a_single_table_of_an_older_run_is_dealt_as_it_was(tmp_path):
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(f"source {i}\ttarget {i}\n" for i in range(97)))
    rules = [open_pairs(TranslateData(place=str(table), deal=deal)) for deal in ("hash", "0.1")]
    assert rules[0].split("val") != rules[1].split("val")
    out = trained(table, tmp_path / "run")
    assert read_config(out)["data"]["deal"] == "hash"
    config = json.loads((out / "config.json").read_text())
    del config["data"]["deal"]
    (out / "config.json").write_text(json.dumps(config))
    drop_records(out)
    again = configure(TRANSLATE, Request(), begun=out)["data"]
    assert open_pairs(again).split("val") == rules[1].split("val")


@pytest.mark.parametrize("model", ["recurrent", "transformer"])
def test_a_small_task_is_learned_and_the_run_is_whole(model, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    words = ["eins", "zwei", "drei", "vier"]
    lines = [f"{a} {b}" for a in words for b in words]
    turned = [" ".join(reversed(line.split())) for line in lines]
    for split in ("train", "val"):
        (data / f"{split}.a").write_text("\n".join(lines) + "\n")
        (data / f"{split}.b").write_text("\n".join(turned) + "\n")
    width = {"d_attn": 12} if model == "recurrent" else {"n_heads": 2, "d_ff": 32}
    run = train(
        "translate",
        data=data,
        out=tmp_path / "run",
        model=model,
        d_model=24,
        n_layers=1,
        dropout=0.0,
        max_length=30,
        vocabulary=40,
        bpe_dropout=0.0,
        tune_length=True,
        epochs=40,
        batch_size=4,
        lr=1e-2,
        ema=None,
        label_smoothing=0.0,
        warmup=0.05,
        metric="exact_match",
        evaluate_every=30,
        schedule="constant",
        tensorboard=False,
        device="cpu",
        shown=False,
        **width,
    )
    assert isinstance(run.model, RecurrentTranslator if model == "recurrent" else Translator)
    assert run.model.config.shared
    rows = (run.folder / "metrics.csv").read_text().splitlines()
    assert float(rows[-1].split(",")[rows[0].split(",").index("val_exact_match")]) > 0.8
    assert run.config["data"]["length_penalty"] == ALPHAS[0], "all are as good"
    assert json.loads((run.folder / "tokenizer.json").read_text())


@pytest.mark.plain  # by stand-ins
def test_the_length_that_is_tuned_is_the_best_of_the_pairs(monkeypatch):
    asked = []

    def generate(model, tokens, texts, *, width, alpha):
        asked.append((width, alpha))
        return [SimpleNamespace(text=f"{alpha} {text}") for text in texts]

    def score(texts, references):
        assert len(texts) == len(references) == 5
        return {"bleu": -abs(float(texts[0].split()[0]) - 1.2)}

    monkeypatch.setattr("sightline.tasks.translate.prepare.generate_translations", generate)
    assert tune_length_penalty(None, None, [Pair("a", "b")] * 5, score) == 1.2
    assert asked == [(5, alpha) for alpha in ALPHAS]


@pytest.mark.parametrize("name", list(TRANSLATE.presets))
def test_every_preset_makes_settings(name):
    preset = TRANSLATE.presets[name]
    model = preset.get("model", {})
    from_json(RecurrentConfig if name.endswith("recurrent") else TranslatorConfig, model)
    from_json(TranslateData, preset.get("data", {}))
    from_json(TrainConfig, preset.get("train", {}))


def test_a_number_of_pairs_turns_a_presets_number_of_tokens_off():
    data = Request(data="dates", preset="default")
    assert configure(TRANSLATE, data)["data"].max_tokens == 4096
    asked = Request(data="dates", preset="default", fields={"train": {"batch_size": 7}})
    settings = configure(TRANSLATE, asked)
    assert (settings["train"].batch_size, settings["data"].max_tokens) == (7, None)
    both = {"train": {"batch_size": 7}, "data": {"max_tokens": None}}
    assert (
        configure(TRANSLATE, Request(data="dates", preset="default", fields=both))["data"].max_tokens is None
    )


def test_few_pairs_are_gone_through_more_often_unless_epochs_are_asked_for():
    asked = {"train": {"epochs": 3}}
    assert configure(TRANSLATE, Request(data="dates", preset="default"))["train"].min_steps == 1000
    settings = configure(TRANSLATE, Request(data="dates", preset="default", fields=asked))
    assert (settings["train"].epochs, settings["train"].min_steps) == (3, None)


def test_the_embedded_set_opens_by_name():
    data = TranslateData(n_train=31, n_val=3, n_test=5, tokens="char")
    pairs = open_pairs(data)
    assert len(pairs.split("test")) == 5
    tokens = train_tokenizers(pairs, data)
    assert not tokens.joint
    assert tokens.target.decode(tokens.target.encode("1979-05-03")).startswith("1979")


@pytest.mark.bad_input
def test_a_number_of_pairs_and_a_number_of_tokens_are_refused_together():
    fields = {"train": {"batch_size": 7}, "data": {"max_tokens": 99}}
    with pytest.raises(ValueError, match=r"--batch-size and --max-tokens .* got 7 and 99; give one of them"):
        configure(TRANSLATE, Request(data="dates", fields=fields))


@pytest.mark.bad_input
def test_a_training_without_a_split_to_choose_by_is_refused_with_a_remedy(pairs_folder, tmp_path):
    (pairs_folder / "val.en").unlink()
    (pairs_folder / "val.de").unlink()
    with pytest.raises(
        ValueError, match=r"no split 'val' in .*, but 'train'; put some into val\.de and val\.en"
    ):
        trained(pairs_folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["n_train", "n_val", "n_test"])
def test_an_embedded_set_without_a_date_is_refused_by_its_setting(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        TranslateData(**{name: 0})
