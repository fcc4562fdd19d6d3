"""Later questions by kernels, against the matrix in float64, at sizes that are no multiple of a block."""

import warnings
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sightline.attention.masks import Mask, causal, window
from sightline.look.groups import read_groups
from sightline.look.inputs import Tile
from sightline.look.kernels.request import StatsRequest
from sightline.look.mass_plan import NOWHERE, plan_mass
from tests.look.kernels.test_look_kernels import exact, items_and_heads, masks, pairs_of

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, on inf - inf in the interpreter

MASK_NAMES = [name for name in masks(torch.device("cpu"), 2, 2, 5, 7) if name != "huge"]


def matrix(pairs):
    """The weights in float64, (B, H, T, S), and each query's lse."""
    mask = pairs.mask
    mask = Mask(mask.bands, mask.lengths, mask.allowed, tuple(x.double() for x in mask.added))
    wide = replace(pairs, q=pairs.q.double(), k=pairs.k.double(), mask=mask)
    b, h, t, s = pairs.shape
    scores = wide.scores(Tile(slice(0, b), slice(0, h), (0, t), (0, s)))
    return scores.softmax(-1).nan_to_num(), exact(pairs, StatsRequest()).lse.float()


def near(got, right):
    torch.testing.assert_close(got.double(), right, rtol=1e-5, atol=2e-6)


def received(pairs, queries, largest):
    from sightline.look.kernels.received_from import received_from

    weights, lse = matrix(pairs)
    near(
        received_from(pairs, lse, queries, largest=largest),
        weights[:, :, slice(*queries)].amax(2) if largest else weights[:, :, slice(*queries)].sum(2),
    )


@pytest.mark.combinations
@pytest.mark.parametrize("name", MASK_NAMES)
@pytest.mark.parametrize("largest", [False, True])
def test_received_from_every_mask(device, name, largest):
    b, h, t, s = *items_and_heads(name), 67, 71
    pairs = pairs_of(device, torch.float32, (b, h, t, s, 17), masks(device, b, h, t, s)[name], kv_heads=1)
    for queries in ((0, t), (5, 12)) if largest else ((0, t), (5, 12), (3, 64)):
        received(pairs, queries, largest)


@pytest.mark.parametrize("d", [16, 23, 129])
def test_received_from_in_half_precision(device, half, d):
    received(pairs_of(device, half, (1, 6, 83, 131, d), causal(), kv_heads=2), (13, 83), largest=False)


def test_received_with_a_factor_for_each_query(device):
    from sightline.look.kernels.received_from import received_from

    pairs = pairs_of(device, torch.float32, (2, 3, 43, 47, 16), window(11, 5))
    factors = torch.rand(2, 43, generator=torch.Generator().manual_seed(3)).to(device)
    weights, lse = matrix(pairs)
    near(
        received_from(pairs, lse, (0, 43), factors=factors),
        torch.einsum("bt,bhts->bhs", factors.double(), weights),
    )


def diagonals(weights, n, first):
    t, s = weights.shape[-2:]
    apart = first + torch.arange(t)[:, None] - torch.arange(s)
    return torch.stack([(weights.cpu() * (apart == d)).sum((-2, -1)) for d in range(n)], -1).to(weights)


@pytest.mark.parametrize("name", MASK_NAMES)
def test_offsets_with_every_mask(device, name):
    from sightline.look.kernels.offsets import offsets

    b, h, t, s = *items_and_heads(name), 67, 71
    pairs = pairs_of(device, torch.float32, (b, h, t, s, 17), masks(device, b, h, t, s)[name], kv_heads=1)
    weights, lse = matrix(pairs)
    for n, first in ((1, 0), (71, s - t), (33, -5)):
        near(offsets(pairs, lse, n, first), diagonals(weights, n, first))


def test_offsets_in_half_precision(device, half):
    from sightline.look.kernels.offsets import offsets

    pairs = pairs_of(device, half, (1, 2, 307, 307, 23), causal())
    weights, lse = matrix(pairs)
    for n in (307, 130, 64, 2):
        near(offsets(pairs, lse, n, 0), diagonals(weights, n, 0))


def gradients_of(pairs, width):
    b, h, t, s = pairs.shape
    generator = torch.Generator().manual_seed(5)
    v = torch.randn(b, pairs.k.size(1), s, width, generator=generator)
    gradient = torch.randn(b, h, t, width, generator=generator) * 1e-4
    return v.to(pairs.q), gradient.to(pairs.q)


def dense_relevance(pairs, v, gradient):
    weights, lse = matrix(pairs)
    v = v.double().repeat_interleave(pairs.shape[1] // v.size(1), 1)
    return (weights * (gradient.double() @ v.mT)).clamp(min=0), lse


@pytest.mark.parametrize("name", MASK_NAMES)
def test_relevance_with_every_mask(device, name):
    from sightline.look.kernels.relevance import relevance

    b, h, t, s = *items_and_heads(name), 67, 71
    pairs = pairs_of(device, torch.float32, (b, h, t, s, 17), masks(device, b, h, t, s)[name], kv_heads=1)
    v, gradient = gradients_of(pairs, 11)
    products, lse = dense_relevance(pairs, v, gradient)
    keys, queries = relevance(pairs, lse, v, gradient)
    near(keys * 1e4, products.sum(-2) * 1e4)
    near(queries * 1e4, products.sum(-1) * 1e4)


def test_relevance_in_half_precision_and_with_factors(device, half):
    from sightline.look.kernels.relevance import relevance

    pairs = pairs_of(device, half, (1, 4, 83, 131, 23), causal(), kv_heads=2)
    v, gradient = gradients_of(pairs, 16)
    products, lse = dense_relevance(pairs, v, gradient)
    factors = torch.rand(1, 83, generator=torch.Generator().manual_seed(3)).to(device)
    keys, queries = relevance(pairs, lse, v, gradient)
    near(keys * 1e4, products.sum(-2) * 1e4)
    near(queries * 1e4, products.sum(-1) * 1e4)
    keys, queries = relevance(pairs, lse, v, gradient, factors=factors)
    assert queries is None
    near(keys * 1e4, torch.einsum("bt,bhts->bhs", factors.double(), products) * 1e4)


def check_mass(pairs, groups):
    from sightline.look.kernels.mass import mass

    members = read_groups(groups, pairs.shape[3], pairs.q.device).members
    weights, lse = matrix(pairs)
    plan = plan_mass(members, banded=bool(pairs.mask.bands))
    shown = members.double() if members.dim() == 2 else members.double()[:, None]
    near(mass(pairs, lse, plan, members.size(-1)), weights @ shown)


@pytest.mark.parametrize("name", MASK_NAMES)
def test_mass_with_every_mask(device, name):
    b, h, t, s = *items_and_heads(name), 67, 71
    pairs = pairs_of(device, torch.float32, (b, h, t, s, 17), masks(device, b, h, t, s)[name], kv_heads=1)
    check_mass(pairs, torch.arange(s) * 7 % 13 - 1)
    check_mass(pairs, [slice(0, 37), [5, 6, 70], []])


@pytest.mark.parametrize("n_groups", [1, 3, 64, 67, 131])
def test_mass_of_many_groups_in_half_precision(device, half, n_groups):
    pairs = pairs_of(device, half, (1, 2, 67, 331, 23), causal(), kv_heads=1)
    check_mass(pairs, torch.arange(331) * 29 % n_groups)
    check_mass(pairs, torch.arange(331) * n_groups // 331)


def test_mass_where_items_differ(device):
    pairs = pairs_of(device, torch.float32, (2, 1, 19, 149, 16), causal())
    ids = torch.stack([torch.arange(149) * 5 % 7, (torch.arange(149) > 140).long()])
    check_mass(pairs, ids.to(device))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    s=st.integers(1, 700),
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=150),
    scattered=st.booleans(),
    banded=st.booleans(),
)
def test_a_plan_holds_each_key_of_each_group_once(s, sizes, scattered, banded):
    members = torch.zeros(s, len(sizes), dtype=torch.bool)
    for group, n in enumerate(sizes):
        chosen = torch.arange(n) * (7919 if scattered else 1) + group * 31
        members[chosen % s, group] = True
    plan = plan_mass(members, banded=banded)
    owners = plan.owners.repeat_interleave(2, 1)[plan.sets[:-1].long()]
    keys = plan.keys.view(-1, plan.tile)
    real = (keys != NOWHERE) & (owners >= 0)
    found = torch.zeros_like(members, dtype=torch.int)
    found.index_put_(
        (keys[real].long(), owners[real].long()), torch.tensor(1, dtype=torch.int), accumulate=True
    )
    assert torch.equal(found, members.int())
    for first, past in zip(plan.walks[:-1], plan.walks[1:], strict=True):
        assert (plan.lowest[0, first:past].diff() >= 0).all()
    for one in range(len(plan.owners)):
        assert (plan.highest[0, plan.sets[:-1] == one].diff() >= 0).all()


@settings(max_examples=25, deadline=None)
@given(
    n_items=st.none() | st.integers(1, 3),
    s=st.integers(1, 300),
    n=st.integers(1, 70),
    tile=st.sampled_from([64, 128]),
)
def test_ids_are_planned_as_their_members_are(n_items, s, n, tile):
    shape = (s,) if n_items is None else (n_items, s)
    groups = read_groups(torch.randint(-1, n, shape, generator=torch.Generator().manual_seed(s * n)), s)
    ids = groups.plan(banded=True, tile=tile)
    members = plan_mass(groups.members, banded=True, tile=tile)
    for name in ("keys", "lowest", "highest", "walks", "sets", "owners", "is_direct", "has_empty"):
        a, b = getattr(ids, name), getattr(members, name)
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b, name


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    t=st.integers(1, 70),
    s=st.integers(1, 90),
    left=st.none() | st.integers(0, 40),
    right=st.none() | st.integers(0, 40),
    align=st.sampled_from(["start", "end"]),
    data=st.data(),
)
def test_any_band_at_any_size(device, t, s, left, right, align, data):
    from sightline.look.kernels.offsets import offsets

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        mask = window(left, right, align=align)
        pairs = pairs_of(device, torch.float32, (1, 1, t, s, 16), mask, seed=t * s)
        first = data.draw(st.integers(0, t - 1))
        received(pairs, (first, data.draw(st.integers(first + 1, t))), largest=False)
        check_mass(pairs, torch.arange(s) * 5 % 11)
        weights, lse = matrix(pairs)
        n, shift = data.draw(st.integers(1, s)), data.draw(st.integers(-9, 40))
        near(offsets(pairs, lse, n, shift), diagonals(weights, n, shift))


def test_twice_the_same_to_the_bit(device, half):
    from sightline.look.kernels.relevance import relevance

    pairs = pairs_of(device, half, (2, 3, 67, 131, 16), causal())
    v, gradient = gradients_of(pairs, 16)
    _, lse = matrix(pairs)
    first, second = (relevance(pairs, lse, v, gradient) for _ in range(2))
    assert torch.equal(first.keys, second.keys)
    assert torch.equal(first.queries, second.queries)
