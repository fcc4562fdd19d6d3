"""Parts of a sequence and their masks, in one process."""

import itertools

import pytest
import torch
from torch import nn

import sightline as sl
from sightline.attention.masks import Mask
from sightline.look.inputs import ScoreInputs
from sightline.look.sharded.axes import Axis, Shard, chunked, consecutive, head_tail, length_of
from sightline.look.sharded.blocks import blocks_of, mask_block
from sightline.look.sharded.placements import shard_of_module

T, S = 11, 17
MASKS = {
    "causal": sl.masks.causal(),
    "causal from the start": sl.masks.causal(align="start"),
    "window": sl.masks.window(3, 1),
    "both": sl.masks.causal(align="start") & sl.masks.window(5, 4),
    "lengths": sl.masks.padding([17, 6, 1]),
    "all": sl.masks.causal() & sl.masks.padding([17, 6, 1]) & sl.masks.window(7, None),
}
LAYOUTS = [consecutive([1, 4, 6]), consecutive([0, 11]), (((0, 2), (9, 11)), ((2, 9),))]


@pytest.mark.parametrize("name", list(MASKS))
@pytest.mark.parametrize("queries", LAYOUTS)
@pytest.mark.parametrize("keys", [consecutive([5, 0, 12]), (((13, 17), (0, 4)), ((4, 13),))])
def test_blocks_of_a_mask_make_the_whole(name, queries, keys):
    dense = MASKS[name].dense(T, S)
    expected = torch.broadcast_to(dense if dense.dim() == 2 else dense[:, None], (3, 1, T, S))
    fitted = Mask(MASKS[name].bands, tuple(x.reshape(-1, 1, 1, 1) for x in MASKS[name].lengths))
    found = torch.zeros(3, 1, T, S, dtype=torch.bool)
    for own, others in itertools.product(queries, keys):
        q, k = torch.zeros(3, 1, length_of(own), 1), torch.zeros(3, 1, length_of(others), 1)
        inputs = ScoreInputs(q, k, fitted, 1.0)
        for block in blocks_of(inputs, k, own, others, (T, S)):
            t, s = block.inputs.shape[2:]
            part = block.inputs.mask.block((0, t), (0, s), t, s)
            rows = slice(block.first_query, block.first_query + t)
            found[:, :, rows, block.first_key : block.first_key + s] = part
    assert torch.equal(found, expected)


def test_a_block_that_nobody_may_look_at_is_left_out():
    assert mask_block(sl.masks.causal(), (0, 3), (3, 6), slice(0, 3), (9, 9)) is None
    assert mask_block(sl.masks.window(1, None), (6, 9), (0, 5), slice(0, 3), (9, 9)) is None
    assert mask_block(sl.masks.causal(), (3, 6), (0, 3), slice(0, 3), (9, 9)).bands == ()  # all may


def test_the_load_balancer_is_torchs():
    balancers = pytest.importorskip("torch.distributed.tensor.experimental._context_parallel._load_balancer")
    for ranks in (2, 3, 4):
        size = 2 * ranks * 5
        order = balancers._HeadTailLoadBalancer(size, ranks, "cpu")._generate_indices()[0]
        axis = Axis((), size, head_tail(size, ranks))
        assert torch.equal(axis.order(), order.long())


@pytest.mark.parametrize(("size", "ranks"), [(29, 4), (5, 4), (3, 4), (8, 2)])
def test_chunks_are_torchs(size, ranks):
    parts = torch.arange(size).chunk(ranks)
    found = [Axis(part, size).positions() for part in chunked(size, ranks)]
    assert [x.tolist() for x in found[: len(parts)]] == [x.tolist() for x in parts]
    assert all(not len(x) for x in found[len(parts) :])


def test_an_axis_says_which_part_it_is():
    assert str(Axis(((4, 8),), 16)) == "4-7 of 16"
    assert str(Axis(((0, 2), (2, 3), (6, 7)), 9)) == "0-2, 6 of 9"
    assert str(Axis((), 9)) == "none of 9"
    assert str(Shard(heads=Axis(((4, 8),), 16)).select([0], [1, 3])) == "heads 5, 7 of 16"


def test_a_saved_part_of_the_heads_still_says_so(tmp_path):
    x = torch.randn(1, 4, 5, 8)
    sight = sl.look(x, x, x)
    object.__setattr__(sight, "shard", Shard(heads=Axis(((4, 8),), 16)))
    sight.save(tmp_path / "part.safetensors")
    assert sl.Sight.load(tmp_path / "part.safetensors").heads == (4, 5, 6, 7)
    assert sl.look(x, x, x).heads == (0, 1, 2, 3)
    assert sl.look(x[0, 0], x[0, 0], x[0, 0]).heads == ()


def test_a_module_with_some_of_its_heads_says_so():
    class Attention(nn.Module):
        num_heads = 8

    assert "2 of the 8 heads" in str(shard_of_module(Attention(), 2, 5))
    assert shard_of_module(Attention(), 8, 5) is None
    assert shard_of_module(nn.Linear(3, 3), 8, 5) is None


def test_flex_attention_with_gathered_keys_says_so():
    context = pytest.importorskip("torch.distributed.tensor.experimental._context_parallel._attention")
    style = context._ContextParallel(2, context._ContextParallel.AttentionType.FLEX)
    module = style._apply(nn.Identity(), mesh=None)
    assert "received is what this rank's queries gave" in str(shard_of_module(module, 8, 5))


@pytest.mark.bad_input
def test_a_group_needs_processes():
    x = torch.randn(1, 4, 5, 8)
    with pytest.raises(ValueError, match="initialised"):
        sl.look(x, x, x, group=object())
