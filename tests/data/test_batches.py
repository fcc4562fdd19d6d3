import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sightline.data.batches import batches_by_length, pad, prefetch, seed_of, shuffled_batches


@given(st.integers(1, 97), st.integers(1, 31), st.integers(0, 5), st.integers(0, 5))
def test_shuffled_has_everything_once(n, batch_size, seed, epoch):
    batches = shuffled_batches(n, batch_size, seed, epoch)
    assert sorted(i for batch in batches for i in batch) == list(range(n))
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert 1 <= len(batches[-1]) <= batch_size
    assert batches == shuffled_batches(n, batch_size, seed, epoch)


def test_an_epoch_has_an_order_of_its_own():
    orders = [tuple(shuffled_batches(101, 101, seed, epoch)[0]) for seed in (0, 1) for epoch in (0, 1, 2)]
    assert len(set(orders)) == 6


@given(st.lists(st.integers(1, 53), min_size=1, max_size=97), st.integers(1, 211), st.integers(0, 3))
def test_by_length_has_everything_once_and_keeps_the_limit(lengths, max_tokens, epoch):
    batches = batches_by_length(lengths, max_tokens, seed=0, epoch=epoch)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= max_tokens
    assert batches == batches_by_length(lengths, max_tokens, seed=0, epoch=epoch)


def test_by_length_pads_little_and_mixes():
    lengths = torch.randint(5, 60, (2003,), generator=torch.Generator().manual_seed(0)).tolist()
    batches = batches_by_length(lengths, 1009, seed=0, epoch=0)
    padded = sum(max(lengths[i] for i in batch) * len(batch) for batch in batches)
    assert padded < 1.1 * sum(lengths)
    firsts = [lengths[batch[0]] for batch in batches]
    assert firsts != sorted(firsts)
    others = batches_by_length(lengths, 1009, seed=0, epoch=1)
    assert {frozenset(batch) for batch in batches}.isdisjoint({frozenset(batch) for batch in others})


def test_pad():
    assert torch.equal(pad([[5, 6, 7], [], [8]], value=9), torch.tensor([[5, 6, 7], [9, 9, 9], [8, 9, 9]]))
    assert pad([[1], [2, 3]], length=5).shape == (2, 5)
    assert pad([[], []]).shape == (2, 0)


def test_seeds_are_told_apart():
    seeds = {seed_of(a, b) for a in range(30) for b in range(30)}
    assert len(seeds) == 900
    assert seed_of(1, 23) != seed_of(12, 3)
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_ahead_keeps_the_order(threads):
    def slow(n):
        time.sleep(0.01 * (n % 3 == 0))
        return n * n

    with prefetch(slow, range(17), threads=threads) as squares:
        assert list(squares) == [n * n for n in range(17)]


def test_ahead_raises_where_the_item_would_have_come():
    def load(n):
        if n == 3:
            raise ValueError("item 3 is bad")
        return n

    got = []
    with pytest.raises(ValueError, match="item 3 is bad"), prefetch(load, range(9)) as loaded:  # noqa: PT012
        for n in loaded:
            got.append(n)  # noqa: PERF402
    assert got == [0, 1, 2]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


def test_ahead_is_no_further_ahead_than_asked_and_leaves_no_thread():
    started = []

    def load(n):
        started.append(n)
        return n

    with prefetch(load, range(1000), threads=2, depth=5) as loaded:
        assert next(loaded) == 0
        time.sleep(0.05)
        assert len(started) <= 6
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


@pytest.mark.bad_input
def test_nothing_to_batch():
    with pytest.raises(ValueError, match="at least 1 example, got 0"):
        shuffled_batches(0, 4, 0, 0)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got -2"):
        shuffled_batches(3, -2, 0, 0)
    with pytest.raises(ValueError, match="max_tokens must be at least 1, got 0"):
        batches_by_length([3], 0, 0, 0)
