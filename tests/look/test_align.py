"""Alignments: the path that a loop finds, Whisper's own timestamps, beams, and what is no alignment."""

import os
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import sightline as sl
from sightline.look.align import median_filter
from sightline.look.dtw import warp
from tests.look.look_oracle import randn

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def slow_warp(cost):
    """The recurrence, cell by cell."""
    t, s = cost.shape
    total = np.full((t + 1, s + 1), np.inf)
    total[0, 0] = 0
    for i in range(1, t + 1):
        for j in range(1, s + 1):
            total[i, j] = cost[i - 1, j - 1] + min(total[i - 1, j - 1], total[i - 1, j], total[i, j - 1])
    return total[t, s]


@settings(max_examples=60, deadline=None)
@given(t=st.integers(1, 7), s=st.integers(1, 11), seed=st.integers(0, 99))
def test_the_path_is_the_cheapest_monotone_one(t, s, seed):
    cost = np.random.default_rng(seed).normal(size=(t, s))
    rows, columns = warp(cost)
    assert (rows[0], columns[0], rows[-1], columns[-1]) == (0, 0, t - 1, s - 1)
    assert set(zip(np.diff(rows).tolist(), np.diff(columns).tolist(), strict=True)) <= {
        (0, 1),
        (1, 0),
        (1, 1),
    }
    assert abs(cost[rows, columns].sum() - slow_warp(cost)) < 1e-5


@pytest.mark.parametrize("cost", [np.nan, np.inf])
def test_a_path_through_no_numbers_stays_inside(cost):
    rows, columns = warp(np.full((3, 2), cost))
    assert (rows.tolist(), columns.tolist()) == ([0, 1, 2, 2], [0, 0, 0, 1])


def test_a_median_filter_by_a_loop():
    x = randn(2, 3, 11, dtype=torch.float32)
    mirrored = torch.cat([x[..., 1:3].flip(-1), x, x[..., -3:-1].flip(-1)], -1)
    slow = torch.stack([mirrored[..., i : i + 5].median(-1).values for i in range(11)], -1)
    assert torch.equal(median_filter(x, 5), slow)
    assert torch.equal(median_filter(x[..., :2], 5), x[..., :2])


def diagonal(b=1, h=2, t=5, s=15):
    """Queries that stand at keys 0, 3, 6, ...; head 1 looks anywhere."""
    k = torch.eye(s).expand(b, h, s, s)
    at = torch.arange(t) * s // t
    q = 12 * sum(torch.nn.functional.one_hot(at + i, s).float() for i in range(3)).expand(b, h, t, s).clone()
    q[:, 1] = randn(b, t, s, dtype=torch.float32) * 9
    return sl.look(q, k, k), at


def test_queries_that_walk_along_the_keys():
    sight, at = diagonal()
    assert torch.equal(sl.align(sight, heads=[0], filter_width=3), at)
    assert torch.equal(sl.align(sight[0, 0], filter_width=3), at)
    both = sl.align(sight, filter_width=3)
    assert both.shape == (5,)
    assert (both.diff() >= 0).all()


def test_several_items_and_windows():
    sight, at = diagonal(b=3)
    places = sl.align(sight, [0], filter_width=3)
    assert torch.equal(places, at.expand(3, 5))
    window = sl.align(sight, [0], queries=(2, 5), keys=(6, 15), filter_width=3)
    assert torch.equal(window, (at[2:] - 6).expand(3, 3))


def test_peaks_are_those_of_each_query_alone():
    sight, _ = diagonal(b=2)
    weights = sight.map((5, 15)).mean(1)
    assert torch.equal(sl.align(sight, method="peak", filter_width=1), weights.argmax(-1))


def test_beams_are_followed():
    sight, _ = diagonal(b=2)
    beams = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 0, -1]])
    weights = sight.map((5, 15)).mean(1)
    rows = torch.stack([weights[beams.clamp(min=0)[:, i], i] for i in range(5)], 1)
    assert torch.equal(sl.align(sight, method="peak", filter_width=1, beams=beams), rows.argmax(-1))


@pytest.fixture(scope="module")
def whisper():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tf = pytest.importorskip("transformers")
    tf.logging.set_verbosity_error()
    torch.manual_seed(0)
    sizes = {"d_model": 12, "encoder_layers": 1, "decoder_layers": 2, "num_mel_bins": 5, "vocab_size": 97}
    sizes |= {
        f"{side}_{what}": n
        for side in ("encoder", "decoder")
        for what, n in (("attention_heads", 3), ("ffn_dim", 7))
    }
    special = {"decoder_start_token_id": 1, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    options = {"suppress_tokens": None, "begin_suppress_tokens": None, "median_filter_width": 7}
    config = tf.WhisperConfig(**sizes, **special, **options, max_source_positions=50, max_target_positions=40)
    model = tf.WhisperForConditionalGeneration(config).eval()
    for p in model.parameters():
        if p.dim() > 1:
            p.data.mul_(8)
    model.generation_config = tf.GenerationConfig(**special, no_timestamps_token_id=90)
    model.generation_config.alignment_heads = [[0, 1], [1, 0], [1, 2]]
    return model, randn(2, 5, 100, dtype=torch.float32) * 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("n_beams", [1, 3])
def test_whisper_gives_the_timestamps_of_its_own_eager_path(whisper, n_beams):
    model, audio = whisper
    options = {"max_new_tokens": 13, "num_beams": n_beams, "return_dict_in_generate": True}
    model.set_attn_implementation("eager")
    theirs = model.generate(audio, return_token_timestamps=True, **options)
    model.set_attn_implementation("sdpa")
    with sl.watch(model, layers="*encoder_attn", keep=True) as seen:
        ours = model.generate(audio, return_segments=False, output_scores=n_beams > 1, **options)
    assert torch.equal(ours["sequences"], theirs["sequences"])
    beams = None
    if n_beams > 1:
        n = int((ours["beam_indices"] != -1).sum(-1).max())
        beams = ours["beam_indices"][:, :n]
        beams = torch.cat([beams[:, :1], beams], -1)  # the prompt has two tokens
    heads = model.generation_config.alignment_heads
    t = seen.stack(seen.names()[0]).t if beams is None else beams.size(1)
    places = sl.align(seen, heads=[tuple(x) for x in heads], queries=(2, t), beams=beams)
    times = theirs["token_timestamps"][:, 2:-1]
    torch.testing.assert_close(places * 0.02, times)
    assert len(set(times[0].tolist())) > 3


# Bad input


@pytest.mark.bad_input
def test_what_is_no_alignment():
    sight, _ = diagonal()
    with pytest.raises(ValueError, match=r"heads must be in 0\.\.1, got 2; the sight has 2 heads"):
        sl.align(sight, [2])
    with pytest.raises(ValueError, match="at least one head, got none"):
        sl.align(sight, [])
    with pytest.raises(ValueError, match="odd whole number, got 4"):
        sl.align(sight, filter_width=4)
    with pytest.raises(ValueError, match=r"unknown method 'dwt'.*did you mean 'dtw'"):
        sl.align(sight, method="dwt")
    with pytest.raises(TypeError, match="a Sight or a Recording, got Tensor"):
        sl.align(torch.zeros(3, 3))
    with pytest.raises(ValueError, match=r"beams must be whole numbers \(N, T\).*T=5 steps, got \(1, 3\)"):
        sl.align(sight, beams=torch.zeros(1, 3, dtype=torch.long))
    with pytest.raises(ValueError, match=r"rows of the batch, 0\.\.0, got 1"):
        sl.align(sight, beams=torch.ones(1, 5, dtype=torch.long))
    with pytest.raises(ValueError, match=r"queries must be a range .* within 0\.\.5, got \(3, 9\)"):
        sl.align(sight, queries=(3, 9))
    with pytest.raises(ValueError, match="a map of 5 x 15 can't be had any more"):
        sl.align(sight.forget())
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    with sl.watch(layer, keep=True) as seen:
        layer(torch.randn(1, 5, 8))
    with pytest.raises(ValueError, match="no cross-attention was seen, got 'self_attn'"):
        sl.align(seen)
