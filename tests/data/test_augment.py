"""Augmentation against torch's own flips, shifts and rotations; draws that depend on their place alone."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.data.augment import Augment, _beta, apply_augment, as_floats, mix, partners
from sightline.data.augment_ops import TONES, apply_tones, contrast, grey
from sightline.data.counter_rng import random_integers, random_uniform

B, C, H, W = 5, 3, 11, 13
INDICES = torch.arange(B)
EVERYTHING = Augment(
    crop=0.5, shift=0.1, zoom=0.1, rotate=10.0, shear=0.1, flip=0.5, colour=0.4, rand=2, erase=0.5
)


def images(seed=0, c=C, h=H, w=W, b=B):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (b, c, h, w), generator=generator, dtype=torch.uint8)


def change(x, augment, *, seed=0, epoch=0, indices=INDICES):
    return apply_augment(x, augment, seed=seed, epoch=epoch, indices=indices)


def splitmix(x):
    mask = (1 << 64) - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


@given(
    seed=st.integers(0, 2**60),
    epoch=st.integers(0, 10**6),
    index=st.integers(0, 10**9),
    stream=st.integers(0, 9),
)
@settings(max_examples=30, deadline=None)
def test_draws_are_splitmix_in_pythons_integers(seed, epoch, index, stream):
    key = splitmix(splitmix(splitmix(seed % (1 << 62)) ^ stream) ^ epoch)
    expected = [(splitmix(splitmix(key ^ index) ^ n) >> 40) / (1 << 24) for n in range(3)]
    found = random_uniform(seed, torch.tensor(epoch), torch.tensor([index]), 3, stream=stream)
    assert found[0].tolist() == expected


def test_draws_are_even_and_unlike_each_other():
    u = random_uniform(7, 3, torch.arange(20_000), 3)
    assert torch.allclose(u.mean(0), torch.tensor(0.5), atol=0.01)
    assert torch.allclose(u.var(0), torch.tensor(1 / 12), atol=0.003)
    assert torch.corrcoef(u.T).triu(1).abs().max() < 0.03
    assert not torch.equal(u, random_uniform(7, 4, torch.arange(20_000), 3))
    counts = torch.bincount(random_integers(7, 0, 0, torch.arange(7000)), minlength=7)
    assert counts.min() > 850


def test_nothing_asked_nothing_changed():
    x = images()
    assert torch.equal(change(x, Augment()), as_floats(x))


@pytest.mark.parametrize("augment", [EVERYTHING, Augment(rand=3), Augment(crop=0.1), Augment(erase=1.0)])
def test_an_image_is_changed_alike_in_any_batch_and_unlike_in_another_epoch(augment):
    x = images()
    whole = change(x, augment)
    order = torch.tensor([3, 0])
    torch.testing.assert_close(change(x[order], augment, indices=order), whole[order])
    assert not torch.equal(change(x, augment, epoch=1), whole)
    assert not torch.equal(change(x, augment, seed=1), whole)
    assert whole.shape == x.shape
    assert -1.001 <= whole.min() <= whole.max() <= 1.001


def test_a_flip_is_torchs_and_happens_as_often_as_asked():
    x = images()
    torch.testing.assert_close(change(x, Augment(flip=1.0)), as_floats(x).flip(-1), atol=1e-4, rtol=0)
    many = images(b=1).expand(2000, -1, -1, -1)
    found = change(many, Augment(flip=0.3), indices=torch.arange(2000))
    same = (found - as_floats(many[:1])).abs().amax((1, 2, 3)) < 1e-3
    assert 0.66 < same.float().mean() < 0.74


def test_a_shift_moves_whole_pixels_and_leaves_black_behind():
    x = images(b=40)
    found = change(x, Augment(shift=0.2), indices=torch.arange(40))
    moved = set()
    for one, before in zip(found, as_floats(x), strict=True):
        places = [
            (dy, dx)
            for dy in range(-3, 4)
            for dx in range(-3, 4)
            if torch.allclose(one, rolled(before, dy, dx), atol=1e-3)
        ]
        assert len(places) == 1
        moved.add(places[0])
    assert len(moved) > 15
    assert max(abs(dy) for dy, _ in moved) <= math.ceil(0.2 * H)


def rolled(x, dy, dx):
    """x shifted, black (-1) where nothing came from."""
    out = torch.full_like(x, -1.0)
    h, w = x.shape[1:]
    out[:, max(0, -dy) : h - max(0, dy), max(0, -dx) : w - max(0, dx)] = x[
        :, max(0, dy) : h + min(0, dy), max(0, dx) : w + min(0, dx)
    ]
    return out


def test_a_rotation_keeps_a_disc():
    rows, columns = torch.meshgrid(torch.arange(21.0) - 10, torch.arange(21.0) - 10, indexing="ij")
    disc = ((rows**2 + columns**2).sqrt() < 7).float().mul(255).to(torch.uint8).expand(6, 1, 21, 21)
    found = change(disc, Augment(rotate=90.0), indices=torch.arange(6))
    assert (found - as_floats(disc)).abs().mean() < 0.08


def test_zoom_and_crop_change_the_size_of_what_is_seen():
    dot = torch.zeros(50, 1, 15, 15, dtype=torch.uint8)
    dot[:, :, 5:10, 5:10] = 255
    area = (change(dot, Augment(zoom=0.5), indices=torch.arange(50)) + 1).sum((1, 2, 3)) / 2
    assert area.min() < 18 < 35 < area.max()
    ((across, down_across), (across_down, down)), found = moved(Augment(crop=0.3))
    assert 0.29 < (across * down).min() < 0.4 < 0.9 < (across * down).max() < 1.001
    assert (across / down).log().abs().max() < math.log(4 / 3) + 1e-3
    assert torch.stack([down_across, across_down]).abs().max() < 1e-3
    assert found[..., 1:-1, 1:-1].min() > -0.5  # nothing black from beyond the edge


def moved(augment, n=300):
    """How places in the image (column, row) change along a row and down a column, in the middle of each."""
    side, step = 41, 2  # of brightness, from one pixel to the next
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    x = (torch.stack([columns, rows, rows]) * step + 90).to(torch.uint8).expand(n, 3, side, side)
    found = change(x, augment, indices=torch.arange(n))
    places = (found[:, :2] + 1) * (127.5 / step)
    along = (places[..., 20, 23] - places[..., 20, 17]) / 6
    down = (places[..., 23, 20] - places[..., 17, 20]) / 6
    return (along.unbind(1), down.unbind(1)), found


def test_rotation_and_shear_go_as_far_as_asked():
    ((across, up), (left, down)), _ = moved(Augment(rotate=30.0))
    angles = torch.rad2deg(torch.atan2(up, across))
    assert -30.1 < angles.min() < -25 < 25 < angles.max() < 30.1
    torch.testing.assert_close((across, up), (down, -left), atol=1e-3, rtol=0)
    ((across, up), (lean, down)), _ = moved(Augment(shear=0.2))
    assert -0.201 < lean.min() < -0.15 < 0.15 < lean.max() < 0.201
    assert max((across - 1).abs().max(), (down - 1).abs().max(), up.abs().max()) < 1e-3


def test_shifts_are_by_parts_of_pixels_where_asked():
    for subpixel in (False, True):
        _, found = moved(Augment(shift=0.1, subpixel=subpixel))
        places = (found[:, :2, 20, 20] + 1) * (127.5 / 2)
        assert bool(((places - places.round()).abs() < 0.01).all()) == (not subpixel)


def test_each_operation_of_rand_augment_has_its_turn():
    n = 1300
    ((_, up), (lean, _)), _ = moved(Augment(rand=1, rand_strength=1.0), n)
    leant, leant_down = (lean.abs() > 0.01), (up.abs() > 0.01)
    for chosen in (up * lean < -1e-4, leant & ~leant_down, leant_down & ~leant):  # the first are turned
        assert 60 < chosen.sum() < 140  # a hundred of each of 13
    x = images(b=1).expand(n, -1, -1, -1)
    found = change(x, Augment(rand=1, rand_strength=1.0), indices=torch.arange(n))
    same = (found - as_floats(x)).abs().amax((1, 2, 3)) < 1e-3
    assert 60 < same.sum() < 400


def test_colours_are_changed_one_after_the_other_each_by_a_factor_of_its_own():
    x = torch.tensor([200, 90, 40], dtype=torch.uint8).view(1, 3, 1, 1).expand(50, 3, 7, 7)
    found = (change(x, Augment(colour=0.5), indices=torch.arange(50)) + 1) / 2
    draws = random_uniform(0, 0, torch.arange(50), 3, stream=2)
    luma = torch.tensor([0.299, 0.587, 0.114])
    for image, u in zip(found, draws, strict=True):
        colour = torch.tensor([200, 90, 40]) / 255
        bright, contrasted, saturated = (0.5 + u).tolist()
        colour = (colour * bright).clamp(0, 1)
        for factor in (contrasted, saturated):  # of one colour alone, both are about how grey it is
            light = (colour * luma).sum()
            colour = (light + (colour - light) * factor).clamp(0, 1)
        torch.testing.assert_close(image, colour.view(3, 1, 1).expand(3, 7, 7))


@pytest.mark.parametrize("which", range(len(TONES)))
def test_each_tone_leaves_images_as_they_are_at_strength_zero(which):
    x = images().float() / 255
    found = apply_tones(x, torch.full((B,), which), torch.zeros(B))
    if TONES[which] == "autocontrast":
        x = (x - x.amin((2, 3), keepdim=True)) / (x.amax((2, 3), keepdim=True) - x.amin((2, 3), keepdim=True))
    torch.testing.assert_close(found, x, atol=1 / 255, rtol=0)
    changed = apply_tones(x, torch.full((B,), which), torch.full((B,), 0.7))
    assert TONES[which] == "autocontrast" or not torch.allclose(changed, x, atol=1 / 100)
    assert 0 <= changed.min() <= changed.max() <= 1
    assert torch.equal(apply_tones(x, torch.full((B,), 99), torch.ones(B)), x)


def test_grey_images_have_no_saturation_to_lose_and_contrast_none_at_zero():
    x = images(c=1).float() / 255
    assert grey(x) is x
    flat = contrast(x, torch.zeros(B, 1, 1, 1))
    assert (flat.amax((2, 3)) - flat.amin((2, 3))).max() < 1e-6


def test_erasing_fills_one_rectangle():
    x = torch.zeros(60, 1, 20, 20, dtype=torch.uint8)
    found = change(x, Augment(erase=1.0), indices=torch.arange(60)) != -1
    for mask in found[:, 0]:
        rows, columns = mask.any(1).nonzero().flatten(), mask.any(0).nonzero().flatten()
        if len(rows):
            box = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            assert box.float().mean() > 0.95
    assert found.flatten(1).any(1).float().mean() > 0.9
    assert found.float().mean() < 0.33


@pytest.mark.parametrize("alpha", [0.2, 0.5, 1.0, 4.0])
def test_shares_follow_the_beta_distribution(alpha):
    u = (torch.arange(20_000) + 0.5) / 20_000
    x = _beta(u, alpha)
    assert float(x.mean()) == pytest.approx(0.5, abs=1e-3)
    assert float(x.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.01)
    assert (x[1:] >= x[:-1] - 1e-6).all()


def test_mixup_blends_and_cutmix_pastes_and_the_share_tells():
    n = 300
    ones, zeros, indices = torch.ones(n, 1, 17, 19), torch.zeros(n, 1, 17, 19), torch.arange(n)
    blended = mix(ones, zeros, Augment(mixup=0.5), seed=0, epoch=0, indices=indices)
    torch.testing.assert_close(blended.images, blended.share.view(-1, 1, 1, 1).expand_as(ones))
    pasted = mix(ones, zeros, Augment(cutmix=1.0), seed=0, epoch=0, indices=indices)
    assert set(pasted.images.unique().tolist()) <= {0.0, 1.0}
    torch.testing.assert_close(pasted.images.mean((1, 2, 3)), pasted.share)
    half = mix(ones, zeros, Augment(mixup=1.0, cutmix=1.0, mix=0.5), seed=0, epoch=0, indices=indices)
    assert 0.4 < (half.share == 1).float().mean() < 0.65
    torch.testing.assert_close(half.images.mean((1, 2, 3)), half.share)


def test_partners_are_any_of_the_set_and_a_function_of_the_index():
    found = partners(11, seed=0, epoch=2, indices=torch.arange(500))
    assert set(found.tolist()) == set(range(11))
    assert torch.equal(partners(11, seed=0, epoch=2, indices=torch.tensor([77])), found[77:78])


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"crop": 0.0}, "got 0.0"),
        ({"flip": 1.5}, "flip must be at least 0 and at most 1, got 1.5"),
        ({"rotate": -3.0}, "rotate .*-3"),
    ],
)
def test_settings_out_of_range_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        Augment(**changes)
