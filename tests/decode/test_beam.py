import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.decode.search import beam, greedy, sample
from tests.decode.toys import BOS, EOS, Toy, ToyState, everything, log_probability


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("end", [0.0, 2.0])
def test_an_unbounded_beam_is_exhaustive_search(alpha, end):
    model, words, longest = Toy(6, end=end), [3, 4, 5], 4
    width = 130  # more than there are sequences: 1 + 3 + 9 + 27 + 81
    found = beam(model, model.start(3), width=width, n_best=7, alpha=alpha, max_length=longest)
    for number in range(3):
        best = everything(model, number, words, longest, alpha)[:7]
        assert found.lists()[number] == [body for _, body in best]
        torch.testing.assert_close(found.scores[number], torch.tensor([score for score, _ in best]))


@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 5), longest=st.integers(1, 7), end=st.sampled_from([-2.0, 0.0, 3.0]))
def test_a_beam_of_one_is_greedy(n, longest, end):
    model = Toy(7, end=end)
    ours = beam(model, model.start(n, look=True), width=1, alpha=0.0, max_length=longest)
    plain = greedy(model, model.start(n, look=True), max_length=longest)
    assert ours.lists() == plain.lists()
    torch.testing.assert_close(ours.scores, plain.scores)
    torch.testing.assert_close(
        ours.attention_weights, plain.attention_weights[:, :, : ours.attention_weights.size(2)]
    )


def plain_beam(model, number, width, alpha, longest, words):
    """The algorithm in lists, one input: what the vectorised one must give."""
    running, pool = [(0.0, [])], []
    for t in range(longest):
        tried = []
        for score, body in running:
            past = torch.tensor([[BOS, *body]])
            log_probs, _ = model.step(ToyState(torch.tensor([number]), past[:, :-1]), past[0, -1:])
            tried += [(score + log_probs[0, w].item(), body, w) for w in [EOS, *words]]
        tried.sort(key=lambda one: -one[0])
        enders = [one for one in tried[:width] if one[2] == EOS]
        if len(pool) < width:
            pool += [(score / (t + 1) ** alpha, body) for score, body, _ in enders]
            pool = sorted(pool, key=lambda one: -one[0])[:width]
        if len(pool) == width:
            break
        running = [(score, [*body, w]) for score, body, w in tried if w != EOS][:width]
    else:
        pool += [(score / longest**alpha, body) for score, body in running]
    return sorted(pool, key=lambda one: -one[0])[:width]


@pytest.mark.parametrize("width", [2, 3, 5])
@pytest.mark.parametrize("end", [-1.0, 1.0])
def test_a_beam_is_what_a_plain_loop_finds(width, end):
    model, words, longest, alpha = Toy(11, end=end), [3, 5, 6, 7, 8, 9, 10], 6, 0.7
    found = beam(
        model,
        model.start(4),
        width=width,
        n_best=width,
        alpha=alpha,
        max_length=longest,
        forbidden=(0, 1, 4),
    )
    for number in range(4):
        expected = plain_beam(model, number, width, alpha, longest, words)
        assert found.lists()[number] == [body for _, body in expected]
        torch.testing.assert_close(found.scores[number], torch.tensor([score for score, _ in expected]))


def test_beams_that_never_end_are_scored_and_not_dropped():
    model = Toy(7, end=-50.0)
    found = beam(model, model.start(2), width=3, n_best=3, alpha=1.0, max_length=5)
    assert found.lengths.eq(5).all()
    for number in range(2):
        for tokens, score in zip(found.lists()[number], found.scores[number], strict=True):
            assert score.item() == pytest.approx(log_probability(model, number, tokens) / 5, abs=1e-5)


def test_attention_follows_the_beam_that_survived():
    model = Toy(7)
    found = beam(model, model.start(3, look=True), width=4, n_best=4, max_length=6)
    for number in range(3):
        for row, tokens in enumerate(found.lists()[number]):
            for t in range(found.ids.size(2)):
                seen = number + BOS + sum(tokens[:t]) if t < len(tokens) else 0.0
                assert found.attention_weights[number, row, t, 0].tolist() == [seen, -seen]


def test_ids_are_padded_and_carry_no_specials():
    model = Toy(7, end=1.5)
    found = beam(model, model.start(5), width=3, n_best=3, max_length=8)
    at = torch.arange(found.ids.size(2))
    assert found.ids.masked_select(at >= found.lengths[..., None]).eq(0).all()
    assert not torch.isin(
        found.ids.masked_select(at < found.lengths[..., None]), torch.tensor([0, 1, 2])
    ).any()


def test_fewer_sequences_than_asked_for_have_no_score():
    model = Toy(4)
    found = beam(model, model.start(1), width=9, n_best=9, max_length=2)  # "", "3" and the cut-off "3 3"
    assert found.scores.isfinite().sum() == 3
    assert found.lengths[found.scores == -torch.inf].eq(0).all()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"width": 0}, "at least 1 wide, got 0"),
        ({"width": 3, "n_best": 4}, "n_best=4 for a width of 3"),
        ({"max_length": 0}, "at least 1 token, got 0"),
    ],
)
def test_wishes_that_make_no_sense(wishes, words):
    model = Toy(5)
    with pytest.raises(ValueError, match=words):
        beam(model, model.start(1), **{"max_length": 3} | wishes)


@pytest.mark.parametrize(
    ("width", "words"),
    [(1, 11), (2, 11), (5, 11), (19, 5)],
    ids=["greedy", "2", "5", "wider than can be filled"],
)
@pytest.mark.parametrize("end", [-2.0, 1.0])
def test_each_input_has_its_own_limit_as_if_it_were_alone(width, words, end):
    model, limits = Toy(words, end=end), [2, 7, 3, 1, 5]
    state = model.start(len(limits), look=True)
    found = beam(model, state, width=width, n_best=width, alpha=0.7, max_length=limits)
    plain = greedy(model, state, max_length=limits)
    for i, longest in enumerate(limits):
        start = state.select(torch.tensor([i]))
        alone = beam(model, start, width=width, n_best=width, alpha=0.7, max_length=longest)
        assert found.lists()[i] == alone.lists()[0]
        torch.testing.assert_close(found.scores[i], alone.scores[0])
        assert plain.lists()[i] == greedy(model, start, max_length=longest).lists()[0]
        torch.testing.assert_close(plain.scores[i], greedy(model, start, max_length=longest).scores[0])


def test_draws_keep_to_the_limit_of_their_input():
    model, limits = Toy(7, end=-90.0), [3, 5, 2]
    found = sample(model, model.start(3), samples=2, max_length=limits)
    assert found.lengths.tolist() == [[n, n] for n in limits]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("given", "words"),
    [([3, 5], "one for each input, got 2 for 3 inputs"), ([3, 0, 5], "at least 1 token, got 0")],
)
def test_limits_that_fit_no_inputs_are_refused(given, words):
    model = Toy(7)
    for search in (beam, greedy):
        with pytest.raises(ValueError, match=words):
            search(model, model.start(3), max_length=given)


@pytest.mark.parametrize("longest", [np.int64(4), torch.tensor(4)], ids=["numpy", "torch"])
def test_a_limit_is_any_whole_number(longest):
    model = Toy(7)
    expected = beam(model, model.start(3), max_length=4)
    assert beam(model, model.start(3), max_length=longest).lists() == expected.lists()
    with pytest.raises(TypeError):
        beam(model, model.start(2), max_length=[2.5, 3])


class Wide(Toy):
    """Of many words; the likeliest lie together in one place, or at the end of a row."""

    def __init__(self, vocab_size, *, at):
        super().__init__(vocab_size)
        self.at = at

    def step(self, state, ids):
        log_probs, state = super().step(state, ids)
        log_probs[:, self.at] += 3.0
        return log_probs.log_softmax(-1), state


@pytest.mark.parametrize("vocab_size", [1664, 1709, 4999])
@pytest.mark.parametrize(
    "at", [slice(70, 76), slice(-7, None), slice(3, None, 97)], ids=["near", "end", "far"]
)
def test_of_many_words_the_likeliest_are_found(vocab_size, at):
    model, words = Wide(vocab_size, at=at), range(3, vocab_size)
    found = beam(model, model.start(2), width=2, n_best=2, alpha=0.7, max_length=2)
    for number in range(2):
        expected = plain_beam(model, number, 2, 0.7, 2, words)
        assert found.lists()[number] == [body for _, body in expected]
        torch.testing.assert_close(found.scores[number], torch.tensor([score for score, _ in expected]))


def test_what_is_not_asked_for_is_as_documented():
    model = Toy(9, end=-1.0)
    found = beam(model, model.start(3), max_length=6)
    asked = beam(model, model.start(3), width=5, n_best=1, alpha=1.0, max_length=6, forbidden=(0, 1))
    assert found.lists() == asked.lists()
    assert torch.equal(found.scores, asked.scores)
    assert found.attention_weights is None
