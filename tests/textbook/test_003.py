"""Assignment 2, attention mechanism in transformer: the claims of its pages, and its captioner."""

import math

import pytest
import torch

import sightline as sl
from sightline.data.scenes import Scenes
from sightline.data.tokens import BOS, EOS, PAD, Tokenizer


def test_each_element_attends_to_every_other_and_becomes_query_key_and_value():
    attend, x = sl.nn.SelfAttention(8, 6, 4, bias=False), torch.randn(2, 5, 8)
    q, k, v = attend.project(x)
    torch.testing.assert_close(q, x @ attend.Wq.weight.T)
    output, weights = sl.reference.scaled_dot_product_attention(q, k, v)
    assert (weights > 0).all()
    torch.testing.assert_close(attend(x), output)


def test_without_the_root_the_softmax_saturates_and_gradients_vanish():
    torch.manual_seed(0)
    d = 512
    q, k = torch.randn(64, d, dtype=torch.float64), torch.randn(64, d, dtype=torch.float64)
    peaks, gradients = {}, {}
    for name, scale in (("scaled", None), ("plain", 1.0)):
        weights = sl.look(q, k, k, scale=scale).rows(range(64))
        peaks[name] = weights.amax(-1).mean().item()
        gradients[name] = (weights * (1 - weights)).sum(-1).mean().item()  # of each weight by its own score
    assert peaks["plain"] > 0.9  # one 1 and a whole bunch of zeros
    assert peaks["scaled"] < 0.3
    assert gradients["scaled"] > 5 * gradients["plain"]


def test_it_does_not_step_through_the_sequence():
    q, k, v = torch.randn(7, 4), torch.randn(7, 4), torch.randn(7, 3)
    whole = sl.attention(q, k, v)
    for t in (6, 0, 3):  # any position, in any order, without the others
        torch.testing.assert_close(sl.attention(q[t : t + 1], k, v)[0], whole[t])


def test_eight_heads_by_hand():
    """Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), without biases."""
    E, h = 64, 8
    attend = sl.nn.MultiheadAttention(E, h, bias=False, batch_first=True)
    Q, K, V = torch.randn(2, 5, E), torch.randn(2, 7, E), torch.randn(2, 7, E)
    w_q, w_k, w_v = (w.unflatten(0, (h, E // h)) for w in attend.in_proj_weight.chunk(3))
    heads = [
        sl.reference.scaled_dot_product_attention(Q @ w_q[i].T, K @ w_k[i].T, V @ w_v[i].T)[0]
        for i in range(h)
    ]
    torch.testing.assert_close(attend(Q, K, V)[0], torch.cat(heads, -1) @ attend.out_proj.weight.T)


@pytest.mark.parametrize("phi", [1, 5, -4])
@pytest.mark.parametrize("k", [0, 3, 7])
def test_a_shift_turns_each_pair_of_sine_and_cosine(phi, k):
    d_model, t = 16, 6
    omega = 10000 ** (-2 * k / d_model)
    M = sl.positions.shift_matrix(phi, d_model, dtype=torch.float64)
    pair = M[2 * k : 2 * k + 2, 2 * k : 2 * k + 2]
    cos, sin = math.cos(omega * phi), math.sin(omega * phi)
    torch.testing.assert_close(pair, torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64))
    before = torch.tensor([math.sin(omega * t), math.cos(omega * t)], dtype=torch.float64)
    after = torch.tensor([math.sin(omega * (t + phi)), math.cos(omega * (t + phi))], dtype=torch.float64)
    torch.testing.assert_close(pair @ before, after)


def test_positions_are_added_and_are_fixed_or_learned():
    x = torch.randn(2, 5, 8)
    fixed, learned = sl.positions.SinusoidalPositions(8), sl.positions.LearnedPositions(5, 8)
    torch.testing.assert_close(fixed(x) - x, sl.positions.sinusoidal(5, 8).expand(2, 5, 8))
    assert not list(fixed.parameters())
    assert len(list(learned.parameters())) == 1
    torch.testing.assert_close(learned(x) - x, next(learned.parameters()).expand(2, 5, 8))


def test_a_transformer_learns_to_caption_images_and_shows_where_it_looked():
    """Data set, training, evaluation and what to visualise, in a page; the chapter does it in earnest."""
    torch.manual_seed(0)
    scenes = Scenes(4, seed=1)
    tokenizer = Tokenizer.train([caption for i in range(4) for caption in scenes.captions(i)], kind="word")
    images = torch.stack([scenes.open(i) for i in range(4)]).float() / 127.5 - 1
    rows = [[BOS, *tokenizer.encode(scenes.captions(i)[0]), EOS] for i in range(4)]
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, PAD)
    config = sl.models.CaptionerConfig(
        vocab_size=len(tokenizer),
        image_size=64,
        patch=16,
        d_model=64,
        n_heads=4,
        n_layers=2,
        d_ff=128,
        dropout=0.0,
    )
    model = sl.models.Captioner(config)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    losses = []
    for _ in range(60):
        logits = model(images, ids[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
    model.eval()
    state = model.start(images, look=True)
    log_probs, state = model.step(state, ids[:, 0])
    assert (log_probs.argmax(-1) == ids[:, 1]).all()
    torch.testing.assert_close(state.attention_weights.sum(-1), torch.ones(4, 4))  # over the 16 patches
