from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from sightline.data.pair_set import Pair, PairSet
from sightline.data.pair_tokens import PairTokens
from sightline.data.tokens import BOS, EOS, PAD, UNK
from sightline.models.rnn import RecurrentConfig, RecurrentTranslator
from sightline.tasks.translate.data import TranslateData
from sightline.tasks.translate.objective import PairBatch, TranslateObjective, translation_loss
from sightline.train.config import TrainConfig
from sightline.train.processes import spread

WORDS = ["eins", "zwei", "drei", "vier"]


@pytest.fixture
def pairs():
    texts = [Pair(f"{a} {b}", f"{b} {a}") for a in WORDS for b in WORDS]
    return PairSet(
        source="toy", source_language="a", target_language="b", parts={"train": texts, "val": texts[:5]}
    )


def task_of(pairs, train=None, **data):
    tokens = PairTokens.train(pairs.split("train"), vocab_size=40, joint=True)
    settings = TranslateData(place="toy", **data)
    train = TrainConfig(batch_size=5, seed=3) if train is None else train
    return TranslateObjective(pairs, tokens, train=train, data=settings, max_length=30)


def toy_model(tokens, dropout=0.0):
    torch.manual_seed(0)
    size = {"source_vocab_size": len(tokens.source), "vocab_size": len(tokens.target), "shared": True}
    return RecurrentTranslator(RecurrentConfig(d_model=7, d_attn=5, dropout=dropout, **size))


def uneven(task):
    """Three pairs, the second with a target of a single word, so that there is padding."""
    source, target = task.load([0, 5, 7], 0)
    target[1, 2:] = PAD
    target[1, 2] = EOS
    assert target.size(1) > 3
    return PairBatch(source, target)


def test_batches_are_pairs_between_their_marks(pairs):
    task = task_of(pairs)
    source, target = task.load([3, 1], epoch=0)
    for row, pair in zip(source.tolist(), (pairs.parts["train"][i] for i in (3, 1)), strict=True):
        assert row[row.index(EOS) :].count(EOS) == 1
        assert task.tokens.source.decode(row) == pair.source
    assert target[:, 0].eq(BOS).all()
    assert task.tokens.target.decode(target[0].tolist()) == pairs.parts["train"][3].target


def test_batches_by_tokens_hold_no_more_and_every_pair_once(pairs):
    task = task_of(pairs, max_tokens=20)
    plan = task.plan(4)
    assert sorted(i for batch in plan for i in batch) == list(range(16))
    assert plan == task.plan(4) != task.plan(5)
    for batch in plan:
        assert task.load(batch, 4).source.numel() <= 20 or len(batch) == 1


def test_pairs_at_the_limit_are_whole_and_longer_ones_are_cut(pairs):
    task = task_of(pairs)
    whole = task.load(range(16), 0)
    assert whole.target.size(1) == whole.source.size(1) + 1, "the longest of both sides are equally long here"
    task.max_length = whole.source.size(1)
    assert torch.equal(task.load(range(16), 0).source, whole.source)
    assert torch.equal(task.load(range(16), 0).target, whole.target)
    task.max_length -= 1
    assert task.load(range(16), 0).source.size(1) == task.max_length
    assert task.load(range(16), 0).target.size(1) == task.max_length + 1


def test_the_settings_reach_the_loss(pairs):
    made = {"bpe_dropout": 0.3, "consistency": 2.0, "word_dropout": 0.4}
    task = task_of(pairs, TrainConfig(batch_size=5, seed=3, label_smoothing=0.2), **made)
    model, batch = toy_model(task.tokens, dropout=0.3), task.load([0, 5, 7], 0)
    torch.manual_seed(1)
    expected = translation_loss(model, batch, smoothing=0.2, consistency=2.0, word_dropout=0.4)
    torch.manual_seed(1)
    torch.testing.assert_close(task.loss(model, batch).total, expected.total)
    other = task_of(pairs, TrainConfig(batch_size=5, seed=4), **made)
    seen = [[one.load([i], e).source.tolist() for i in range(16) for e in range(3)] for one in (task, other)]
    assert seen[0] != seen[1], "the run's seed chooses the cuts"


def test_an_evaluation_searches_as_the_settings_say(pairs, monkeypatch):
    asked = {}

    def said(model, tokens, texts, **wishes):
        asked.update(wishes)
        return [SimpleNamespace(text=text) for text in texts]

    monkeypatch.setattr("sightline.tasks.translate.objective.generate_translations", said)
    task = task_of(pairs, val_beam=3, length_penalty=0.7, val_most=4)
    task.score = lambda texts, references: {"right": float(len(texts) == len(references) == 4)}
    found = task.evaluate(toy_model(task.tokens))
    assert asked == {"width": 3, "alpha": 0.7, "each": spread}
    assert found["right"] == 1
    assert found["perplexity"] == pytest.approx(torch.tensor(found["loss"]).exp().item())


def test_dropout_cuts_words_anew_each_epoch(pairs):
    task = task_of(pairs, bpe_dropout=0.5)
    seen = {tuple(task.load([0], epoch).source[0].tolist()) for epoch in range(9)}
    assert len(seen) > 2


def test_the_loss_is_torchs_cross_entropy_over_real_tokens(pairs):
    task = task_of(pairs)
    model, batch = toy_model(task.tokens), uneven(task)
    found = translation_loss(model, batch, smoothing=0.1)
    logits, written = model(batch.source, batch.target[:, :-1]), batch.target[:, 1:]
    rows = [
        F.cross_entropy(logits[b, t][None], written[b, t][None], label_smoothing=0.1)
        for b in range(3)
        for t in range(written.size(1))
        if written[b, t] != PAD
    ]
    assert found.terms.item() == len(rows)
    torch.testing.assert_close(found.total, torch.stack(rows).sum())


def test_two_passes_that_agree_cost_what_one_does(pairs):
    task = task_of(pairs)
    model, batch = toy_model(task.tokens), uneven(task)
    one = translation_loss(model, batch, smoothing=0.1)
    two = translation_loss(model, batch, smoothing=0.1, consistency=2.5)
    torch.testing.assert_close(two.total, one.total)
    assert two.also["divergence"].item() == pytest.approx(0, abs=1e-5)


def test_two_passes_that_differ_cost_their_divergence(pairs):
    task = task_of(pairs)
    model, batch = toy_model(task.tokens, dropout=0.5), uneven(task)
    torch.manual_seed(9)
    found = translation_loss(model, batch, consistency=3.0)
    torch.manual_seed(9)
    twice = PairBatch(torch.cat([batch.source] * 2), torch.cat([batch.target] * 2))
    p, q = model(twice.source, twice.target[:, :-1]).log_softmax(-1).chunk(2)
    written = batch.target[:, 1:]
    real = written != PAD
    cross = sum(F.nll_loss(x[real], written[real], reduction="sum") for x in (p, q)) / 2
    apart = sum(F.kl_div(x[real], y[real], reduction="sum", log_target=True) for x, y in ((p, q), (q, p))) / 2
    torch.testing.assert_close(found.total, cross + 3.0 * apart)
    torch.testing.assert_close(found.also["divergence"], apart)


def test_hidden_words_are_unknown_to_the_decoder_alone(pairs):
    task = task_of(pairs)
    batch = task.load([0, 1, 2], 0)
    read = []

    class Spy(torch.nn.Module):
        def forward(self, source, target):
            read.append(target)
            return torch.zeros(*target.shape, 40, requires_grad=True)

    translation_loss(Spy(), batch, word_dropout=0.9)
    assert (read[0] == UNK).float().mean() > 0.3
    assert read[0][:, 0].eq(BOS).all()


def test_a_target_of_the_greatest_length_counts_to_its_end(pairs):
    task = task_of(pairs)
    spent = []

    class Spy(torch.nn.Linear):
        def forward(self, source, target):
            spent.append(target.shape)
            return torch.zeros(*target.shape, 40)

    longest = max(len(task.tokens.target.encode(pair.target)) for pair in pairs.split("val"))
    for most in (longest + 1, longest + 2):
        task.max_length = most
        task.evaluate(Spy(1, 1))
    assert spent[0] == spent[1] == (5, longest + 1)


@pytest.mark.bad_input
def test_a_validation_source_beyond_the_limit_is_refused_before_the_training(pairs):
    tokens = PairTokens.train(pairs.split("train"), vocab_size=40, joint=True)
    length = len(tokens.read("eins zwei"))
    long = Pair("eins zwei eins zwei", "x")
    more = replace(pairs, parts={**pairs.parts, "val": [pairs.parts["val"][0], long]})
    limits = {"max_length": length + 1}
    with pytest.raises(
        ValueError, match=rf"end at max_length={length + 1} tokens, the source of pair 2 .* {2 * length - 1}"
    ):
        TranslateObjective(
            more, tokens, train=TrainConfig(), data=TranslateData(), longest=length + 1, **limits
        )
    TranslateObjective(more, tokens, train=TrainConfig(), data=TranslateData(), **limits)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tokens": "word"}, "unknown tokens 'word'"),
        ({"bpe_dropout": 1.0}, "bpe_dropout must be at least 0 and below 1, got 1.0"),
        ({"consistency": -1.0}, "consistency must be at least 0, got -1.0"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        TranslateData(**settings)
