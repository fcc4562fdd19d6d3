"""A cache is a value: branches don't disturb each other, and step by step equals at once."""

import pytest
import torch

import sightline as sl
from sightline.attention.cache import Cache

B, H, T, D, DV = 2, 3, 7, 5, 11


def draw(t: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(B, H, t, D), torch.randn(B, H, t, DV)


def test_decoding_with_a_cache_equals_causal_attention_at_once() -> None:
    q, (k, v) = torch.randn(B, H, T, D), draw(T)
    cache, steps = Cache(), []
    for cut in ((0, 3), (3, 4), (4, 7)):  # several tokens, one, several
        part = slice(*cut)
        cache = cache.append(k[:, :, part], v[:, :, part])
        steps.append(sl.attention(q[:, :, part], cache.k, cache.v, sl.masks.causal()))
    torch.testing.assert_close(torch.cat(steps, 2), sl.attention(q, k, v, sl.masks.causal()))


def test_branches_of_one_cache_do_not_disturb_each_other() -> None:
    stem = Cache().append(*draw(3)).append(*draw(1))
    kept = stem.k.clone()
    new = [draw(1), draw(1)]
    left, right = (stem.append(*kv) for kv in new)
    assert len(stem) == 4
    assert len(left) == len(right) == 5
    assert torch.equal(stem.k, kept)
    for branch, (k, v) in zip((left, right), new, strict=True):
        assert torch.equal(branch.k, torch.cat([kept, k], 2))
        assert torch.equal(branch.v[:, :, -1:], v)


def test_a_step_writes_only_what_is_new() -> None:
    cache = Cache().append(*draw(3))
    buffers = set()
    for _ in range(189):
        cache = cache.append(*draw(1))
        buffers.add(cache.k.data_ptr())
    assert len(buffers) == 3  # room for 64, 130, 262: doubled, not copied 189 times


def test_select_reorders_the_batch() -> None:
    cache = Cache().append(*draw(3))
    chosen = cache.select(torch.tensor([1, 1, 0]))
    assert torch.equal(chosen.k, cache.k[[1, 1, 0]])
    grown = chosen.append(torch.zeros(3, H, 1, D), torch.zeros(3, H, 1, DV))
    assert torch.equal(grown.v[:, :, :3], cache.v[[1, 1, 0]])


def test_gradients_flow_through_a_cache() -> None:
    parts = [(k.requires_grad_(), v) for k, v in (draw(2), draw(1), draw(1))]
    cache = Cache()
    for k, v in parts:
        cache = cache.append(k, v)
    cache.k.sum().backward()
    assert all(torch.equal(k.grad, torch.ones_like(k)) for k, _ in parts)


@pytest.mark.bad_input
def test_what_does_not_fit_is_named() -> None:
    cache = Cache().append(*draw(3))
    with pytest.raises(ValueError, match=r"k \(2, 3, 1, 7\).*cached k \(2, 3, 3, 5\)"):
        cache.append(torch.zeros(B, H, 1, 7), torch.zeros(B, H, 1, DV))
    with pytest.raises(ValueError, match=r"k \(2, 3, 1, 5\) and v \(2, 3, 2, 11\)"):
        cache.append(torch.zeros(B, H, 1, D), torch.zeros(B, H, 2, DV))
    with pytest.raises(ValueError, match="empty"):
        _ = Cache().k
