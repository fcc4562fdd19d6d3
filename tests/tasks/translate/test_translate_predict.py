"""A trained translator from Python: predictions, attention, scores."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from sightline.data.tokens import EOS
from sightline.evaluate.translation import alignment_accuracy
from sightline.models.manifest import drop_manifest
from sightline.tasks.run import open_run
from sightline.tasks.translate.generate import generate_translations

TEXT, OTHER = "3 mai 1979", "mai 4 mai 1980"
CROSS = "decoder.layers.{}.multihead_attn"


def never_ends(folder, tmp_path):
    """A copy of a Transformer's run whose model never writes the end."""
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    weights = load_file(copy / "model.safetensors")
    weights["decoder.norm.weight"].zero_()
    weights["decoder.norm.bias"].fill_(1.0)
    weights["embedding.weight"].zero_()[EOS + 3] = 1.0
    save_file(weights, copy / "model.safetensors")
    drop_manifest(copy)
    return open_run(copy, "cpu")


def test_a_prediction_tells_what_each_word_looked_at(run):
    one, other = run.predict([TEXT, OTHER], beam=3)
    assert (one.input, other.input) == (TEXT, OTHER)
    tokens = run.predictor.tokens
    assert one.attention.keys == tuple(tokens.source_words(TEXT))
    assert (
        tokens.target.decode([tokens.target.inner.token_to_id(x) for x in one.attention.queries]) == one.text
    )
    shape = (1, 1) if run.model.config.architecture == "recurrent" else (2, 2)
    assert one.attention.weights.shape[:2] == shape
    assert one.attention.weights.sum(-1).allclose(torch.ones(()))
    assert one.alternatives[0] == (one.text, one.score)
    assert len(one.alternatives) == 3
    assert next(run.predict([TEXT], attention=False)).attention is None


def test_a_batch_is_as_good_as_one_by_one(run):
    together = list(run.predict([TEXT, OTHER]))
    alone = list(run.predict([TEXT, OTHER], batch_size=1))
    for a, b in zip(together, alone, strict=True):
        assert (a.text, a.score) == (b.text, pytest.approx(b.score))
        torch.testing.assert_close(a.attention.weights, b.attention.weights)


def test_a_refused_sentence_costs_no_other(run):
    refused = {}
    texts = [TEXT, "3 漢 1979", OTHER, " "]
    found = list(run.predict(texts, on_error=refused.__setitem__))
    assert [p.input for p in found] == [TEXT, OTHER]
    assert list(refused) == ["3 漢 1979", " "]
    assert "no token for the character '漢'" in str(refused["3 漢 1979"])
    assert "something to translate, got ' '" in str(refused[" "])
    expected = list(run.predict([TEXT, OTHER]))
    assert [p.text for p in found] == [p.text for p in expected]


def test_unknown_letters_can_be_read_as_such(run):
    (one,) = run.predict(["3 漢 1979"], unknown=True)
    assert one.attention.keys[2:4] == ("▁", "<unk>")
    assert run.layers(one)


def test_every_attention_of_a_transformer_has_its_words(transformer):
    (one,) = transformer.predict([TEXT])
    layers = transformer.layers(one)
    assert list(layers) == [
        "encoder.layers.0.self_attn",
        "encoder.layers.1.self_attn",
        "decoder.layers.0.self_attn",
        CROSS.format(0),
        "decoder.layers.1.self_attn",
        CROSS.format(1),
    ]
    read, written = one.attention.keys, one.attention.queries
    assert layers["encoder.layers.0.self_attn"].queries == layers["encoder.layers.0.self_attn"].keys == read
    causal = layers["decoder.layers.0.self_attn"]
    assert causal.queries == causal.keys
    assert causal.keys[: 1 + len(written)] == ("<bos>", *written)[: len(causal.keys)]
    assert not causal.weights[0].triu(1).any()
    for i in (0, 1):
        cross = layers[CROSS.format(i)]
        assert cross.queries[: len(written)] == written
        t = len(written)  # what was looked at while writing is what is looked at when it is read again
        torch.testing.assert_close(cross.weights[0, :, :t], one.attention.weights[i], atol=1e-5, rtol=1e-4)


def test_one_that_the_model_ended_has_a_step_more(transformer, folders, tmp_path):
    endless = never_ends(folders["transformer"], tmp_path)
    (cut,) = endless.predict([TEXT])
    n = len(cut.attention.keys)
    assert len(cut.attention.queries) == 2 * n + 10
    assert endless.layers(cut)[CROSS.format(0)].queries == cut.attention.queries
    with torch.no_grad():
        endless.model.embedding.weight[EOS] = 2.0  # now it ends at once
    (empty,) = endless.predict([TEXT])
    assert empty.attention.weights.shape == (2, 2, 0, n)
    assert endless.layers(empty)[CROSS.format(0)].queries == ("<eos>",)


def test_a_translation_as_long_as_the_model_takes_can_be_looked_at(folders, tmp_path):
    endless = never_ends(folders["transformer"], tmp_path)
    (one,) = endless.predict(["1 " * 30])
    assert len(one.attention.queries) == 64
    assert endless.layers(one)[CROSS.format(0)].weights.shape[2] == 64
    assert endless.watch(["1 " * 30]).names()


def test_a_recurrent_model_has_one_attention(folders):
    run = open_run(folders["recurrent"], "cpu")
    (one,) = run.predict([TEXT])
    assert run.layers(one) == {"attention": one.attention}


def test_watching_sees_every_attention_of_a_batch(transformer):
    seen = transformer.watch([TEXT, OTHER])
    assert len(seen.names()) == 6
    sight = seen["encoder.layers.0.self_attn"]
    n = len(transformer.predictor.tokens.read(OTHER))
    assert sight.rows([0]).shape == (2, 2, 1, n)


def test_the_search_is_the_one_that_was_asked_for(folder, tmp_path, monkeypatch):
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text())
    config["data"]["length_penalty"] = 0.3
    (copy / "config.json").write_text(json.dumps(config))
    drop_manifest(copy)
    asked = []

    def spy(model, tokens, texts, **wishes):
        asked.append((len(texts), wishes["width"], wishes["alpha"]))
        return generate_translations(model, tokens, texts, **wishes)

    monkeypatch.setattr("sightline.tasks.translate.predict.generate_translations", spy)
    run = open_run(copy, "cpu")
    run.evaluate(beam=2, limit=3)
    list(run.predict([TEXT], beam=4))
    assert asked == [(3, 2, 0.3), (1, 4, 0.3)]


def test_scores_come_with_signatures_and_each_translation_has_its_own(run):
    result = run.evaluate(beam=2)
    assert list(result.scores) == ["bleu", "chrf", "exact_match", "alignment_accuracy"]
    assert set(result.signatures) == {"bleu", "chrf"}
    assert result.about.startswith(
        "11 pairs of split 'test' of dates, date to iso, beam 2, length_penalty 1; alignment by chance 0."
    )
    assert len(result.predictions) == 11
    one = result.predictions[0]
    assert one.references == (run.dataset().split("test")[0].target,)
    assert set(one.metrics) == {run.task.ranking} == {"chrf"}


def test_alignment_is_measured_by_the_words_of_the_very_dates(run, monkeypatch):
    seen = []

    def spy(outputs, tokens, weights, dates, offsets):
        seen.append([date.source for date in dates])
        assert all(w.shape == (len(t), len(o)) for w, t, o in zip(weights, tokens, offsets, strict=True))
        return alignment_accuracy(outputs, tokens, weights, dates, offsets)

    monkeypatch.setattr("sightline.tasks.translate.predict.alignment_accuracy", spy)
    splits = ("all", "train", "val", "te")
    inputs = [[p.input for p in run.evaluate(split, beam=1).predictions] for split in splits]
    assert seen == inputs
    assert seen[0] == [text for part in seen[1:] for text in part]
    assert len(seen[0]) == 60 + 7 + 11


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("3 漢 1979", "has no token for the character '漢', got it in '3 漢 1979'"),
        ("3 m\udce4i 1979", "must be UTF-8, got the byte 0xe4"),
        (3, "a sentence is a text, got int"),
    ],
)
def test_what_can_not_be_translated_is_refused(run, text, sentence):
    with pytest.raises(ValueError, match=sentence):
        list(run.predict([TEXT, text]))


@pytest.mark.bad_input
def test_layers_need_a_prediction_that_looked(run):
    (one,) = run.predict([TEXT], attention=False)
    with pytest.raises(ValueError, match="predict with attention=True"):
        run.layers(one)
