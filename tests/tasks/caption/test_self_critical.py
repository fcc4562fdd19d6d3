import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.data.batches import pad
from sightline.data.tokens import BOS, EOS, PAD, UNK
from sightline.decode.search import Hypotheses, beam
from sightline.evaluate.ngrams import cider
from sightline.tasks.caption.reward import Cider
from sightline.tasks.caption.self_critical import (
    SelfCriticalConfig,
    SelfCriticalObjective,
    append_end,
    self_critical_stage,
)
from sightline.train.loop import fit
from tests.tasks.caption.small_captioner import TRAIN, made

captions = st.lists(st.integers(4, 9), min_size=1, max_size=8)
images = st.lists(st.tuples(st.lists(captions, min_size=1, max_size=4), captions), min_size=2, max_size=9)


def by_words(references, candidates):
    """The scores of an evaluation, which are counted with dictionaries."""
    known = [[[str(x) for x in c] for c in of_image] for of_image in references]
    return torch.tensor(cider([[str(x) for x in c] for c in candidates], known)[1], dtype=torch.float64)


def padded(references, length=11):
    most = max(map(len, references))
    return torch.stack([pad([*r, *[[]] * (most - len(r))], length=length) for r in references])


@settings(deadline=None, max_examples=60)
@given(images)
def test_the_reward_is_the_cider_of_an_evaluation(corpus):
    references, candidates = [r for r, _ in corpus], [c for _, c in corpus]
    ours = Cider(padded(references)).score(torch.arange(len(corpus)), pad(candidates)[:, None])
    torch.testing.assert_close(ours[:, 0], by_words(references, candidates), rtol=0, atol=1e-9)


def test_cider_of_several_captions_of_some_images():
    generator = torch.Generator().manual_seed(0)
    references = [
        [torch.randint(4, 30, (n,), generator=generator).tolist() for n in (3, 11, 7, 5)[: 1 + i % 4]]
        for i in range(23)
    ]
    chosen = [17, 2, 17]
    drawn = torch.randint(4, 40, (3, 5, 9), generator=generator)
    drawn[0, 0, :7] = torch.tensor((references[17][-1] * 3)[:7])
    scores = Cider(padded(references)).score(torch.tensor(chosen), drawn)
    for row, image in enumerate(chosen):
        for k in range(5):
            candidates = [r[0] for r in references]
            candidates[image] = drawn[row, k].tolist()
            assert scores[row, k].item() == pytest.approx(
                by_words(references, candidates)[image].item(), abs=1e-9
            )


def test_an_empty_caption_scores_nothing():
    reward = Cider(torch.tensor([[[4, 5, 6, 7, 8]], [[5, 5, 6, 9, 4]]]))
    scores = reward.score(torch.tensor([0, 1]), torch.tensor([[[PAD, PAD, PAD]], [[4, PAD, PAD]]]))
    assert scores[0].item() == 0.0
    assert scores.isfinite().all()


@pytest.mark.bad_input
def test_a_corpus_that_can_not_be_scored():
    with pytest.raises(ValueError, match="image 1 has no caption"):
        Cider(torch.tensor([[[4, 5]], [[PAD, PAD]]]))
    with pytest.raises(ValueError, match="below 65536 to be scored, got 70000"):
        Cider(torch.tensor([[[70_000, 5]]]))


def test_the_end_is_put_back_where_one_was_written():
    ids = torch.tensor([[[7, 8, PAD], [5, 6, 9], [PAD, PAD, PAD]]])
    found = Hypotheses(ids=ids, lengths=torch.tensor([[2, 3, 0]]), scores=torch.zeros(1, 3))
    written, real = append_end(found)
    assert written[0].tolist() == [[7, 8, EOS], [5, 6, 9], [EOS, PAD, PAD]]
    assert real[0].tolist() == [[True, True, True], [True, True, True], [True, False, False]]


def stage(decoder="transformer", **wishes):
    model, task = made(decoder)
    config = SelfCriticalConfig(**{"samples": 3, "temperature": 1.0} | wishes)
    critical = SelfCriticalObjective(task, config, config.training(TRAIN))
    critical.prepare(torch.device("cpu"))
    return model, critical


@pytest.mark.parametrize("decoder", ["transformer", "recurrent"])
@pytest.mark.parametrize("baseline", ["greedy", "others"])
def test_the_loss_is_minus_advantage_times_log_probability(decoder, baseline):
    model, critical = stage(decoder, baseline=baseline)
    model.eval()
    batch = critical.load([4, 9], 0)
    torch.manual_seed(3)
    loss = critical.loss(model, batch)
    torch.manual_seed(3)
    seen = critical.first.model_inputs(model, batch)
    drawn, reward, advantage = critical.draw(model, seen, batch.indices)
    # The search's own scores are the log-probabilities of what it drew, its end included.
    torch.testing.assert_close(loss.total, -(advantage * drawn.scores).sum().float(), rtol=1e-4, atol=1e-5)
    assert loss.terms.item() == 6
    torch.testing.assert_close(loss.also["reward"], reward.sum())
    if baseline == "others":
        others = torch.stack([reward[:, [j for j in range(3) if j != k]].mean(1) for k in range(3)], dim=1)
        torch.testing.assert_close(advantage, reward - others)


@pytest.mark.parametrize("drop", [False, True])
def test_activations_are_dropped_only_if_asked_and_never_while_drawing(drop):
    model, task = made(dropout=0.5)
    config = SelfCriticalConfig(samples=3, baseline="others", drop=drop, temperature=1.0)
    critical = SelfCriticalObjective(task, config, config.training(TRAIN))
    critical.prepare(torch.device("cpu"))
    batch = critical.load(list(range(11)), 0)
    model.train()
    torch.manual_seed(3)
    loss = critical.loss(model, batch)
    assert model.training
    torch.manual_seed(3)
    drawn, _, advantage = critical.draw(
        model.eval(), critical.first.model_inputs(model, batch), batch.indices
    )
    plain = -(advantage * drawn.scores).sum().float()
    assert torch.isclose(loss.total, plain, rtol=1e-4, atol=1e-4).item() is not drop


def told(model, images, captions, temperature):
    """The log-probability of captions, one word after the other, at a temperature."""
    sums = []
    for ids in captions:
        state, before, total = model.start(images), BOS, 0.0
        for word in ids:
            log_probs, state = model.step(state, torch.tensor([before]))
            total += (log_probs / temperature).log_softmax(-1)[0, word].item()
            before = word
        sums.append(total)
    return torch.tensor(sums)


@pytest.mark.parametrize(
    "wishes", [{"temperature": 0.5}, {"temperature": 1.7}, {"draw": "beam", "temperature": 0.5}]
)
def test_what_is_learned_is_what_was_drawn_from(wishes):
    model, critical = stage(baseline="others", **wishes)
    model.eval()
    batch = critical.load([7], 0)
    seen = critical.first.model_inputs(model, batch)
    torch.manual_seed(3)
    drawn, _, advantage = critical.draw(model, seen, batch.indices)
    longest = drawn.ids.size(-1)
    captions = [[*ids, EOS][:longest] for ids in drawn.lists()[0]]
    temperature = 1.0 if "draw" in wishes else wishes["temperature"]  # a beam searches at 1
    expected = -(advantage[0].float() * told(model, seen, captions, temperature)).sum()
    torch.manual_seed(3)
    torch.testing.assert_close(critical.loss(model, batch).total, expected, rtol=1e-4, atol=1e-4)


def test_a_beam_draws_what_the_search_finds():
    model, critical = stage(baseline="others", draw="beam")
    seen = critical.first.model_inputs(model, critical.load([5, 2], 0))
    drawn, _, _ = critical.draw(model, seen, torch.tensor([5, 2]))
    found = beam(
        model.eval(), model.start(seen), width=3, n_best=3, max_length=critical.first.model.max_length
    )
    assert drawn.lists() == found.lists()


def test_draws_are_as_wild_as_the_temperature():
    different = []
    for temperature in (1.0, 1e-3):
        model, critical = stage(temperature=temperature)
        seen = critical.first.model_inputs(model, critical.load([5], 0))
        torch.manual_seed(3)
        found, _, _ = critical.draw(model, seen, torch.tensor([5]))
        different.append(len({tuple(ids) for ids in found.lists()[0]}))
    assert different == [3, 1]


def test_the_second_stage_neither_stops_early_nor_takes_means():
    before = dataclasses.replace(TRAIN, average_last=3, patience=2, seed=7, clip=0.5)
    training = SelfCriticalConfig(lr=1e-3).training(before)
    assert (training.average_last, training.patience) == (0, None)
    assert (training.lr, training.seed, training.clip, training.batch_size) == (1e-3, 7, 0.5, 16)


def test_rewards_are_those_of_the_train_split():
    model, critical = stage()
    split = critical.first.train_split
    known = [
        [[i for i in row[1:].tolist() if i != PAD] for row in rows if row[0] != PAD] for rows in split.ids
    ]
    drawn, reward, _ = critical.draw(
        model.eval(), critical.first.model_inputs(model, critical.load([5], 0)), torch.tensor([5])
    )
    for k, ids in enumerate(drawn.lists()[0]):
        ended = [*ids, EOS] if len(ids) < drawn.ids.size(-1) else ids
        candidates = [r[0] for r in known]
        candidates[5] = ended
        assert reward[0, k].item() == pytest.approx(by_words(known, candidates)[5].item(), abs=1e-9)


def test_writing_unknown_is_never_rewarded():
    _, critical = stage()
    ids = critical.first.train_split.ids.clone()
    ids[0][ids[0] > UNK] = UNK
    critical.first._splits["train"] = dataclasses.replace(critical.first.train_split, ids=ids)
    critical.prepare(torch.device("cpu"))
    unknown = Hypotheses(
        ids=torch.full((1, 1, 6), UNK), lengths=torch.tensor([[6]]), scores=torch.zeros(1, 1)
    )
    assert critical._reward(unknown, torch.tensor([0])).item() == 0.0


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_it_raises_the_reward(tmp_path, precision):
    train = dataclasses.replace(TRAIN, epochs=4, lr=1e-2, precision=precision)
    model, task = made(train=train, score=lambda texts, references: {"cider": 0.0})
    config = SelfCriticalConfig(epochs=6, lr=5e-3, samples=5, baseline="others", batch_size=20)
    out = fit(model, task, train, tmp_path / "run", then=[self_critical_stage(task, config)], shown=False)
    lines = [line.split(",") for line in (out / "metrics.csv").read_text().splitlines()]
    column = lines[0].index("reward")
    rewards = [float(line[column]) for line in lines[1:] if line[column]]
    assert len(rewards) == 6
    assert rewards[-1] > 1.3 * rewards[0] > 0


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        ({"baseline": "zero"}, "unknown baseline 'zero'"),
        ({"draw": "lots"}, "unknown draw 'lots'"),
        ({"baseline": "others", "samples": 1}, "'others' needs at least 2 samples, got 1"),
        ({"temperature": 0.0}, "temperature must be a positive number, got 0.0"),
        ({"temperature": float("inf")}, "temperature must be a finite number, got inf"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"lr": -0.1}, "lr must be a positive number, got -0.1"),
    ],
)
def test_wishes_that_make_no_sense(wishes, sentence):
    with pytest.raises(ValueError, match=sentence):
        SelfCriticalConfig(**wishes)
