import inspect

import pytest
import torch

from sightline.decode.replay import GraphReplay
from sightline.decode.sampling import truncate
from sightline.decode.search import Hypotheses, beam, greedy, sample
from tests.decode.toys import BOS, EOS, Toy, log_probability


def test_greedy_takes_the_likeliest_each_time():
    model = Toy(7, end=0.5)
    found = greedy(model, model.start(5), max_length=6)
    for number in range(5):
        state, before, tokens = model.start(5).select(torch.tensor([number])), BOS, []
        for _ in range(6):
            log_probs, state = model.step(state, torch.tensor([before]))
            before = int(log_probs[0, 2:].argmax()) + 2  # neither PAD nor BOS
            tokens.append(before)
            if before == EOS:
                break
        assert found.lists()[number] == [[token for token in tokens if token != EOS]]
        assert found.scores[number].item() == pytest.approx(log_probability(model, number, tokens), abs=1e-5)


def test_samples_come_from_the_distribution():
    model = Toy(5)
    found = sample(
        model,
        model.start(2),
        samples=4000,
        temperature=2.0,
        max_length=1,
        generator=torch.Generator().manual_seed(0),
    )
    assert found.ids.shape == (2, 4000, 1)
    for number in range(2):
        log_probs, _ = model.step(model.start(2).select(torch.tensor([number])), torch.tensor([BOS]))
        log_probs[:, :2] = -torch.inf
        chances = (log_probs / 2).softmax(-1)[0]
        drawn = found.ids[number, :, 0].masked_fill(found.lengths[number] == 0, EOS)
        shares = torch.bincount(drawn, minlength=5) / 4000
        torch.testing.assert_close(shares, chances, atol=0.04, rtol=0.0)


def test_scores_of_samples_are_the_models_own():
    model = Toy(7)
    found = sample(model, model.start(3), samples=5, temperature=0.7, top_k=3, max_length=4)
    for number in range(3):
        for row, tokens in enumerate(found.lists()[number]):
            whole = tokens if len(tokens) == 4 else [*tokens, EOS]
            score = found.scores[number, row].item()
            assert score == pytest.approx(log_probability(model, number, whole), abs=1e-4)


def test_a_low_temperature_and_a_top_of_one_are_greedy():
    model = Toy(7)
    plain = greedy(model, model.start(4), max_length=5).lists()
    assert sample(model, model.start(4), temperature=1e-4, max_length=5).lists() == plain
    assert sample(model, model.start(4), top_k=1, max_length=5).lists() == plain
    assert sample(model, model.start(4), top_p=1e-6, max_length=5).lists() == plain


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.93, 1.0])
@pytest.mark.parametrize("top_k", [None, 3, 11, 50])
def test_what_is_kept_by_a_loop(top_p, top_k):
    log_probs = torch.randn(7, 11).log_softmax(-1)
    found = truncate(log_probs, top_k=top_k, top_p=top_p)
    for row, left in zip(log_probs, found, strict=True):
        order = row.argsort(descending=True).tolist()[: top_k or 11]
        total = row[order].exp().sum()
        chosen, reached = [], 0.0
        for i in order:
            if reached < top_p or top_p == 1.0:
                chosen.append(i)
            reached += (row[i].exp() / total).item()
        assert sorted(chosen) == left.isfinite().nonzero().flatten().tolist()
        torch.testing.assert_close(left[chosen], row[chosen])


def test_the_state_that_was_searched_from_can_be_searched_again():
    model = Toy(6)
    state = model.start(2)
    assert greedy(model, state, max_length=4).lists() == greedy(model, state, max_length=4).lists()


def test_texts_and_lists():
    class Letters:
        def decode(self, ids):
            return "".join("..ab"[i] for i in ids)

    found = Hypotheses(torch.tensor([[[3, 2, 0]], [[2, 0, 0]]]), torch.tensor([[2], [1]]), torch.zeros(2, 1))
    assert found.lists() == [[[3, 2]], [[2]]]
    assert found.texts(Letters()) == ["ba", "a"]
    assert found.cpu().lists() == found.lists()


def test_without_a_gpu_a_recorded_search_is_called():
    model = Toy(6)
    calls = []

    def search(numbers):
        calls.append(numbers)
        return greedy(model, model.start(len(numbers)), max_length=4)

    recorded = GraphReplay(search)
    numbers = torch.arange(3.0)
    assert recorded(numbers).lists() == recorded(numbers).lists() == search(numbers).lists()
    assert len(calls) == 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_replay_gives_what_the_search_gives():
    from sightline.models.captioner import Captioner, CaptionerConfig

    config = CaptionerConfig(vocab_size=101, image_size=64, patch=16, d_model=64, n_heads=4, d_ff=128)
    model = Captioner(config).cuda().eval()

    def search(images):
        return beam(model, model.start(images, look=True), width=3, n_best=2, max_length=9)

    recorded = GraphReplay(search)
    for _ in range(3):
        images = torch.randn(5, 3, 64, 64, device="cuda")
        ours, plain = recorded(images), search(images)
        assert ours.lists() == plain.lists()
        torch.testing.assert_close(ours.scores, plain.scores)
        torch.testing.assert_close(ours.attention_weights[:, :, : plain.ids.size(2)], plain.attention_weights)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"temperature": 0.0}, "temperature must be above 0 and finite, got 0.0"),
        ({"temperature": float("inf")}, "temperature must be above 0 and finite, got inf"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, got 1.5"),
        ({"samples": 0}, "samples must be at least 1, got 0"),
        ({"max_length": 0}, "at least 1 token, got 0"),
    ],
)
def test_wishes_that_no_draw_can_grant(wishes, words):
    model = Toy(5)
    with pytest.raises(ValueError, match=words):
        sample(model, model.start(1), **{"max_length": 3} | wishes)


def test_what_is_kept_at_the_borders():
    halves = torch.tensor([[0.5, 0.25, 0.25]]).log()
    assert truncate(halves, top_p=0.5).isfinite().tolist() == [[True, False, False]]  # reached, not passed
    few = torch.randn(2, 11)
    assert truncate(few, top_k=3).isfinite().sum(-1).tolist() == [3, 3]  # fewer rows than tokens asked for
    unlikely = torch.tensor([[0.0, -40.0, -50.0]]).log_softmax(-1)  # the first alone is 1 in float32
    assert torch.equal(truncate(unlikely, top_p=1.0), unlikely)


def test_what_is_not_asked_for_is_as_documented():
    model = Toy(6)

    def draws(**options):
        source = torch.Generator().manual_seed(3)
        return sample(model, model.start(4), samples=5, max_length=7, generator=source, **options).lists()

    assert draws() == draws(temperature=1.0) != draws(temperature=2.0)
    defaults = {name: x.default for name, x in inspect.signature(beam).parameters.items()}
    assert (defaults["width"], defaults["alpha"], defaults["n_best"]) == (5, 1.0, 1)


@pytest.mark.bad_input
def test_no_probability_at_all_is_refused():
    model = Toy(6)
    with pytest.raises(ValueError, match=r"top_p must be above 0 and at most 1, got 0\.0"):
        sample(model, model.start(2), top_p=0.0, max_length=3)


def kept_by_a_loop(log_probs, top_k, top_p):
    """The tokens that may be drawn: of the likeliest, so many, and those before which less was reached."""
    kept, reached = [], 0.0
    chances = log_probs.exp() / log_probs[: top_k or None].exp().sum()
    for i, chance in enumerate(chances.tolist()):
        if (top_k is not None and i >= top_k) or (top_p is not None and reached >= top_p):
            break
        kept.append(i)
        reached += chance
    return kept


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(None, 0.5), (2, None), (3, 0.7), (4, 0.95), (11, 1.0)])
def test_what_is_drawn_is_what_a_loop_keeps(top_k, top_p, temperature):
    """One row, and several: neither the number of inputs nor that of samples is the number of tokens."""
    model, forbidden = Toy(9), (0, 1)
    for n in (1, 3):
        found = sample(
            model,
            model.start(n),
            samples=700,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            generator=torch.Generator().manual_seed(3),
            max_length=1,
            forbidden=forbidden,
        )
        for number in range(n):
            log_probs, _ = model.step(model.start(n).select(torch.tensor([number])), torch.tensor([BOS]))
            log_probs[0, list(forbidden)] = -torch.inf
            ordered, tokens = (log_probs[0] / temperature).log_softmax(-1).sort(descending=True)
            kept = kept_by_a_loop(ordered, top_k, top_p)
            expected = {int(tokens[i]) for i in kept if ordered[i] > -6.0}  # so likely that 700 draws have it
            drawn = {ids[0] if ids else EOS for ids in found.lists()[number]}
            assert expected <= drawn <= {int(tokens[i]) for i in kept}


def test_a_search_ends_with_its_last_sequence():
    class Counting(Toy):
        steps = 0

        def step(self, state, ids):
            self.steps += 1
            return super().step(state, ids)

    for search, options in ((greedy, {}), (sample, {"samples": 2}), (beam, {"width": 1})):
        model = Counting(7, end=3.0)
        found = search(model, model.start(3), max_length=97, **options)
        assert model.steps == found.ids.size(2) == found.lengths.max() + 1 < 97
