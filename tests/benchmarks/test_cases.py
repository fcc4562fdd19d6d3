"""Every bench in small: all contestants run, and compute the same as float64 or as each other."""

import dataclasses

import pytest
import torch

from benchmarks import additive, attention, decode, gpu_check, look, look_questions, train, watch
from benchmarks.harness import OURS, measure, relative_error
from sightline.models.captioner import CaptionerConfig
from sightline.models.translator import TranslatorConfig
from sightline.models.vit import VisionTransformerConfig

CPU, GPU = torch.device("cpu"), torch.device("cuda")
SMALL = attention.Sizes(lengths=(5,), widths=(3,), n_heads=2, d_model=6, tokens=14)
CAPTIONER = CaptionerConfig(
    vocab_size=37, image_size=32, patch=16, d_model=16, n_heads=2, n_layers=2, n_encoder_layers=1, d_ff=24
)
TRANSLATOR = TranslatorConfig(
    source_vocab_size=23, vocab_size=23, shared=True, d_model=16, n_heads=2, n_layers=1, d_ff=24, norm="post"
)
CLASSIFIER = VisionTransformerConfig(
    n_classes=5, image_size=16, patch=8, d_model=16, n_heads=2, n_layers=2, d_ff=24
)


def outputs(contest):
    return {name: contest.run(name) for name in contest.runs}


@pytest.mark.parametrize("bench", [attention, look, watch, additive, decode, train], ids=lambda x: x.__name__)
def test_cases_are_listed_without_their_inputs(bench):
    for device in (CPU, GPU):
        names = [case.name for case in bench.cases(device, False)]
        assert len(set(names)) == len(names) >= len(bench.cases(device, True)) > 0


def test_names_that_pictures_are_drawn_from():
    assert "look beside blind and eager B=1 H=16 T=65536 D=128 causal" in {
        x.name for x in look.cases(GPU, False)
    }
    assert "watch Llama 1 x 65536" in {x.name for x in watch.cases(GPU, False)}


def test_attention_and_modules_agree_with_float64():
    cases = attention.cases(CPU, False, SMALL)
    assert len(cases) == 4 + 7 + 5
    for case in cases:
        outcome = measure(case, CPU, 1e-9)
        expected = [OURS, "torch", *["torch, fast path off"] * (" eval " in case.name)]
        assert [x["contestant"] for x in outcome["results"]] == expected, case.name
        for result in outcome["results"]:
            assert (result["error"] is None) == ("dropout" in case.name), outcome["notes"]
            assert result["error"] is None or result["error"] < 1e-5


def test_a_wrong_answer_of_ours_is_seen(monkeypatch):
    right = attention.sl.attention
    monkeypatch.setattr(attention.sl, "attention", lambda *inputs: 1.001 * right(*inputs))
    outcome = measure(attention.cases(CPU, False, SMALL)[3], CPU, 1e-9)
    assert "inexact" in outcome["faults"]


@pytest.mark.parametrize("causal", [False, True])
def test_a_look_eager_attention_and_float64_see_the_same(causal):
    contest = look.compare(CPU, "look", (2, 3, 192, 8), ("blind", "eager"), causal=causal)
    found, exact = outputs(contest), contest.exact()
    torch.testing.assert_close(found["blind"][0], found[OURS][0])
    for name in (OURS, "eager"):
        assert relative_error(contest.part(found[name]), exact) < 1e-5
    uneven = look.compare(CPU, "look", (1, 2, 131, 8), ("blind",), causal=causal)
    assert relative_error(uneven.part(uneven.run(OURS)), uneven.exact()) < 1e-5


@pytest.mark.parametrize("what", ["rows only", "top 8", "training received"])
def test_other_looks_run(what):
    peer = "everything" if what == "top 8" else "blind"
    assert set(outputs(look.compare(CPU, what, (1, 2, 67, 8), (peer,), causal=True))) == {OURS, peer}


@pytest.mark.parametrize("name", look_questions.QUESTIONS)
def test_a_question_agrees_with_float64(name):
    contest = look_questions.question(CPU, name, (1, 2, 131, 8))
    assert relative_error(contest.part(contest.run(OURS)), contest.exact()) < 1e-5


def test_relevance_a_monitor_flows_and_a_cache_run():
    ours, alone = outputs(look_questions.relevance(CPU, (1, 2, 67, 8))).values()
    for mine, other in zip(ours, alone, strict=False):
        torch.testing.assert_close(mine, other)
    assert outputs(look_questions.monitored(CPU, True)).keys() == {OURS, "unmonitored"}
    for name in ("rollout", "relevance"):
        assert outputs(look_questions.through_layers(CPU, name, 67))[OURS][0].isfinite().all()
    kept = outputs(look_questions.eviction(CPU, 521))[OURS]
    assert kept[0].shape[-1] == 521 // 8


@pytest.mark.parametrize("kind", ["encoder", "BERT", "Llama"])
def test_models_watched_listened_to_and_alone_compute_the_same(kind, monkeypatch):
    monkeypatch.setattr(watch, "_EAGER_TOKENS", {"cpu": 13})
    found = outputs(watch.compare(CPU, kind, 2, 13, 2, 128))
    for name in (OURS, "listening"):
        assert torch.equal(found[name][0], found["blind"][0])
    if kind == "Llama":
        output, *received = found["eager"]
        torch.testing.assert_close(output, found["blind"][0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(received[0].sum(-1), torch.full((2, 1), 13.0))


@pytest.mark.parametrize("backward", [False, True])
def test_additive_attention_agrees_with_float64(backward, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    contest = additive.compare(CPU, torch.float32, 2, 7, 3, backward=backward)
    for result in outputs(contest).values():
        assert relative_error(result, contest.exact()) < 1e-5


@pytest.mark.parametrize(("kind", "config"), [("caption", CAPTIONER), ("translate", TRANSLATOR)])
def test_searches_with_and_without_a_cache_find_the_same_and_hugging_faces_runs(kind, config):
    found = outputs(decode.compare(CPU, kind, config, 4, 3, "no cache"))
    torch.testing.assert_close(found[OURS], found["no cache"], rtol=1e-4, atol=1e-5)
    written = outputs(decode.compare(CPU, kind, config, 4, 3, "hugging face"))["hugging face"][0]
    assert written.shape == (3, 1 + 4)


@pytest.mark.parametrize(
    ("race", "config"),
    [(train.captioners, CAPTIONER), (train.translators, TRANSLATOR), (train.classifiers, CLASSIFIER)],
)
def test_the_same_model_on_torchs_layers_has_the_same_loss(race, config):
    found = outputs(race(CPU, dataclasses.replace(config, dropout=0.0), 3))
    torch.testing.assert_close(found[OURS], found["torch.nn"], rtol=1e-4, atol=1e-5)


def test_no_layer_of_ours_is_left():
    model = train.with_torch_layers(train.Translator(TRANSLATOR))
    assert not [
        x
        for x in model.modules()
        if type(x).__module__.startswith(("sightline.layers", "sightline.attention"))
    ]


def test_the_checks_of_a_gpu_hold_on_a_cpu():
    checks = list(gpu_check.parity(CPU, ((2, 6, 2, 61, 67, 8), (1, 2, 2, 37, 29, 16))))
    assert len(checks) > 300
    assert not [(what, error) for what, error, most in checks if not error <= most]
