"""Weights that a model computed itself, what their scores show, and what is told of calls beside numbers."""

import pytest
import torch
from torch import nn

import sightline as sl
from sightline.attention.masks import Mask
from sightline.look import weights
from sightline.look.inputs import PrecomputedWeights
from sightline.look.look import captured_lse
from sightline.look.stream import Cells, StatsRequest
from sightline.watch import batching, monitor
from sightline.watch.attention_call import kernel_call
from sightline.watch.padding import user_padding
from sightline.watch.readers.eager import EagerTracker
from sightline.watch.tokens import clean, clean_batch
from tests.look.look_oracle import entropy, near, picture, randn

B, H, T, S = 2, 3, 7, 11


@pytest.mark.parametrize("chunk", [1, 70, 1 << 22])
def test_a_matrix_is_reduced_in_chunks(chunk, monkeypatch):
    monkeypatch.setattr(weights, "_CHUNK", chunk)
    w, lse = randn(B, H, T, S).softmax(-1) * 0.9, randn(B, H, T, seed=1)
    w[1, 2, 3] = 0
    w[..., 5] = 0
    request = StatsRequest(True, True, True, Cells(3, 4, (0, T), (0, S)), S)
    found = weights.measure_weights(PrecomputedWeights.of(w), request, lse)
    near(found.received, w.sum(-2))
    near(found.entropy, entropy(w))
    near(found.peak, w.amax(-1))
    empty = torch.zeros(B, H, T, dtype=torch.bool)
    empty[1, 2, 3] = True
    assert torch.equal(found.peak_at, w.argmax(-1).masked_fill(empty, -1))
    near(found.cells, picture(w, 3, 4))
    near(found.top, w.topk(S).values)
    assert bool(((found.top_at == -1) == (found.top == 0)).all())
    near(found.lse, lse.masked_fill(empty, -torch.inf))
    nothing = weights.measure_weights(PrecomputedWeights.of(w), StatsRequest(), lse)
    assert nothing[1:] == (None,) * 7
    for t, s in ((0, 5), (5, 0)):
        small = weights.measure_weights(
            PrecomputedWeights.of(torch.zeros(B, H, t, s)),
            StatsRequest(True, True, True),
            torch.zeros(B, H, t),
        )
        assert [tuple(x.shape) for x in small[:5]] == [(B, H, n) for n in (t, s, t, t, t)]
        assert bool((small.peak_at == -1).all())


# From a product to its softmax and its values


def tracker():
    return EagerTracker(lambda _: False)


def test_weights_are_followed_to_their_values():
    track = tracker()
    q, k, v = randn(2, 5, 4), randn(2, 7, 4), randn(2, 7, 3)
    assert not track.is_following
    scores = q @ k.mT
    assert track.multiply((q, k.mT), scores) is None
    assert track.is_following
    assert not track.has_weights
    changed = scores * 0.5
    track.pass_on((scores, 0.5), changed)
    softened = changed.softmax(-1)
    track.soften((changed, -1), softened)
    assert track.has_weights
    made = track.multiply((softened, v), softened @ v)
    assert (made.is_in_blocks, made.is_of_scores, made.columns) == (False, True, (0, 7))
    near(made.lse, changed.logsumexp(-1))
    assert torch.equal(track.done(made), softened)
    assert track.multiply((softened, v), softened @ v) is None  # once


def test_what_is_no_attention_is_not_followed():
    q, k = randn(2, 5, 4), randn(2, 7, 4)
    scores = q @ k.mT
    for operand in (0, 1):
        track = EagerTracker(lambda x, operand=operand: x.size(1) == (5, 4)[operand])
        track.multiply((q, k.mT), scores)
        assert not track.is_following
    track = tracker()
    track.soften((scores, -1), scores.softmax(-1))
    assert not track.has_weights
    track.soften((scores, -1), scores.softmax(-1), all_heard=False)
    assert track.has_weights
    for dim, followed in ((2, True), (-1, True), (1, False), (-2, False), (0, False)):
        track = tracker()
        track.multiply((q, k.mT), scores)
        track.soften((scores, dim), scores.softmax(dim))
        assert track.has_weights is followed


def test_weights_in_other_shapes():
    def product(operand, values, w):
        track = tracker()
        scores = w.log()
        track.multiply((w, w), scores)
        softened = scores.softmax(-1)
        track.soften((scores, -1), softened)
        x = operand(softened)
        made = track.multiply((x, values) if values is not None else (randn(2, 3, 5), x), x.sum())
        return made, softened, track

    w = randn(2, 5, 7).softmax(-1)
    made, softened, track = product(lambda x: x[..., :6], randn(2, 6, 3), w)  # a sink in the last column
    assert (made.columns, made.is_in_blocks) == ((0, 6), False)
    assert torch.equal(track.done(made), softened[..., :6])
    made, softened, track = product(lambda x: x[..., 1:], randn(2, 6, 3), w)
    assert (made.columns, made.is_in_blocks) == ((1, 7), False)
    assert torch.equal(track.done(made), softened[..., 1:])
    made, _, _ = product(lambda x: x[..., :4], randn(2, 4, 3), w)
    assert made.is_in_blocks is True
    made, _, _ = product(lambda x: x.mT, None, w)  # on the other side
    assert made.is_in_blocks is True or made.columns == (0, 7)


def test_softmaxes_that_nobody_multiplies_are_let_go():
    track, kept = tracker(), []
    for i in range(4):
        scores = randn(1, 3, 5, seed=i)
        track.multiply((scores, scores), scores)
        softened = scores.softmax(-1)
        track.soften((scores, -1), softened)
        kept.append(softened)
    assert [made.weights is None for _, made in track._weights.values()] == [True, True, False, False]
    assert [track.multiply((x, x.mT), x) is not None for x in kept] == [False, False, True, True]


# Beside numbers


def test_the_log_sum_exp_of_several_kernels():
    inputs = kernel_call(randn(1, 2, 5, 4), randn(1, 2, 7, 4), Mask(), 1.0, None).inputs
    whole = randn(1, 2, 5)
    assert captured_lse([whole], inputs) is whole
    assert captured_lse([None], inputs) is None
    assert captured_lse([whole[..., :4]], inputs) is None
    near(captured_lse([whole[..., :2], whole[..., 2:]], inputs), whole)
    assert captured_lse([], inputs) is None
    assert captured_lse([whole[..., :2], None], inputs) is None
    assert captured_lse([whole[..., :2], whole], inputs) is None


def test_masks_of_calls_that_are_measured_together():
    own = torch.zeros(1, 1, 5, 7)
    assert batching._stack_masks((own, own), 2) is own
    assert batching._stack_masks((own, own.clone()), 2).shape == (4, 1, 5, 7)
    both = torch.zeros(2, 1, 5, 7)
    assert batching._stack_masks((both, both), 2).shape == (4, 1, 5, 7)
    assert batching._is_stackable(own, 2)
    assert batching._is_stackable(both, 2)
    assert not batching._is_stackable(both, 3)
    assert not batching._is_stackable(both[0], 2)


@pytest.mark.bad_input
def test_what_is_said_to_be_padding_and_is_not():
    with pytest.raises(ValueError, match="got both; one is enough"):
        user_padding(torch.ones(2, 3), [1, 2])
    with pytest.raises(ValueError, match=r"\(B, T\), True or 1 at real tokens, got the shape \(3,\)"):
        user_padding(torch.ones(3), None)
    for lengths in (torch.ones(2, 2).long(), [1.5]):
        with pytest.raises(ValueError, match="whole numbers, one for each item, got"):
            user_padding(None, lengths)
    with pytest.raises(TypeError, match="got 3; tokenizer"):
        clean_batch([["a", 3]])
    with pytest.raises(TypeError, match="got 'b'; tokenizer"):
        clean_batch([["a"], "b"])


def test_tokens_as_people_read_them():
    assert [clean(x) for x in ("##", "###", "▁▁a", "aĊb", "", " ", "</w>", "ĉ", "Ġ▁")] == [
        "##", "#", "a", "a⏎b", "", "␣", "␣", "⇥", "␣",
    ]  # fmt: skip
    assert clean_batch(None) == clean_batch([]) == ()
    assert clean_batch(["Ġa", "b"]) == (("a", "b"),)
    assert clean_batch([["Ġa"], ("b", "c")]) == (("a",), ("b", "c"))


def test_heads_that_are_dead():
    def status(logit, n, entropy, first, most, gap):
        (row,) = monitor._read_table(7, "a", torch.tensor([[logit, n, entropy, first, most, gap]]))
        return row

    row = status(3.0, 4.0, 2.0, 1.0, 0.5, 0.2)
    assert (row.step, row.layer, row.head, row.max_logit) == (7, "a", 0, 3.0)
    assert (row.entropy, row.first, row.dead) == (0.5, 0.25, False)
    assert status(0.0, 100.0, 50.0, 0.0, 99.1, 50.0).dead is True
    assert status(0.0, 100.0, 50.0, 0.0, 98.9, 50.0).dead is False
    assert status(0.0, 100.0, 50.0, 0.0, 50.0, 0.9).dead is True
    assert status(0.0, 100.0, 50.0, 0.0, 50.0, 1.1).dead is False
    assert status(0.0, 100.0, 9.0, 0.0, 50.0, 0.5).dead is False  # looks at one key, nearly
    assert status(0.0, 0.0, 0.5, 0.25, 0.0, 0.0).first == 0.25
    joined = monitor._joined(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[5.0, 7.0, 11.0]]))
    assert joined.tolist() == [[5.0, 9.0, 14.0]]
    tables = {"a": torch.ones(2, 6)}
    assert monitor.gather(tables) is tables


def test_what_a_monitor_adds_up():
    q, k = randn(2, 3, 5, 4), randn(2, 3, 7, 4, seed=1)
    allowed = torch.ones(5, 7, dtype=torch.bool)
    allowed[2] = False
    sight = sl.look(q, k, k, allowed)
    w, lse = sight.map((5, 7)), sight.lse
    table = monitor.summarise(sight)
    scores = (q @ k.mT * 0.5).masked_fill(~allowed, -torch.inf)
    near(table[:, 0], scores.amax((0, 2, 3)))
    assert table[:, 1].tolist() == [8.0] * 3
    near(table[:, 2], sight.entropy.sum((0, 2)))
    near(table[:, 3], w[..., 0].sum((0, 2)))
    near(table[:, 4], w.sum(-2).amax(-1).sum(0))
    look = lse > -torch.inf
    near(table[:, 5], torch.where(look, sight.entropy + w.amax(-1).log(), 0.0).sum((0, 2)))
    near(monitor.summarise(sight[:, 1]), table[1:2])
    near(sight.logit, scores.amax(-1))


class Meta(nn.Module):
    def forward(self, x):
        return sl.attention(x, x, x, scale=0.3)


@pytest.mark.filterwarnings("ignore:an attention of Meta")
@pytest.mark.parametrize("grad", [False, True])
def test_attention_without_numbers_is_not_seen(grad):
    model = Meta()
    with sl.watch(model, grad=grad) as seen:
        model(torch.zeros(1, 2, 5, 4, device="meta"))
    assert list(seen.unseen().values()) == ["it ran on meta or fake tensors, which hold no numbers"]
