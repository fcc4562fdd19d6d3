"""The Vision Transformer against one of torch.nn, its positions, its stochastic depth, its checks."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import sightline as sl
from sightline.models.vit import SIZES, VisionTransformer, VisionTransformerConfig
from sightline.models.vit_parts import Block, PatchStem, patches, resize_positions, rotate_2d, rotation_2d
from sightline.positions import Rotary

SMALL = VisionTransformerConfig(
    n_classes=7, channels=3, image_size=10, patch=5, d_model=24, n_heads=3, n_layers=2, d_ff=29
)
WAYS = [
    {"positions": positions, "pool": pool, "stem": stem}
    for positions in ("learned", "sinusoidal", "rotary")
    for pool in ("token", "mean")
    for stem in ("patches", "conv")
]


def config(**changes):
    if changes.get("stem") == "conv":
        changes = {"image_size": 8, "patch": 2, **changes}
    return dataclasses.replace(SMALL, **changes)


def drawn(model, seed=0):
    """The model with weights that are nowhere zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model.eval()


def plain(model, images):
    """The same model by torch.nn alone: a convolution and nn.TransformerEncoderLayer."""
    c = model.config
    stem = nn.Conv2d(c.channels, c.d_model, c.patch, stride=c.patch)
    stem.weight.data, stem.bias.data = model.stem.weight.data, model.stem.bias.data
    x = stem(images).flatten(2).transpose(1, 2)
    if model.positions is not None:
        x = x + model.positions.flatten(0, 1)
    if model.token is not None:
        x = torch.cat([model.token.expand(len(x), 1, -1), x], 1)
    for ours in model.layers:
        layer = nn.TransformerEncoderLayer(
            c.d_model, c.n_heads, c.d_ff, 0.0, "gelu", c.norm_eps, batch_first=True, norm_first=True
        )
        layer.load_state_dict(ours.state_dict())
        x = layer.eval()(x)
    x = model.norm(x)
    return model.head(x[:, 0] if model.token is not None else x.mean(1))


@pytest.mark.parametrize("pool", ["token", "mean"])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_it_is_torchs_encoder_over_a_convolution(pool, positions):
    model = drawn(VisionTransformer(config(pool=pool, positions=positions)))
    images = torch.randn(3, 3, 10, 10)
    torch.testing.assert_close(model(images), plain(model, images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ways", WAYS, ids=str)
def test_every_way_learns_and_takes_other_sizes(ways):
    model = VisionTransformer(config(**ways))
    nn.init.normal_(model.head.weight)
    side = model.config.image_size
    logits = model(torch.randn(2, 3, side, side))
    logits.sum().backward()
    assert logits.shape == (2, 7)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model(torch.randn(2, 3, 2 * side, 3 * side)).isfinite().all()


def test_patches_are_cut_row_by_row_as_a_convolution_sees_them():
    images = torch.arange(2 * 3 * 4 * 6, dtype=torch.float32).view(2, 3, 4, 6)
    cut = patches(images, 2)
    assert cut.shape == (2, 2, 3, 12)
    assert torch.equal(cut[1, 1, 2], images[1, :, 2:4, 4:6].flatten())


def test_the_lecture_notes_example():
    assert patches(torch.zeros(1, 3, 224, 224), 16).flatten(1, 2).shape == (1, 196, 768)


def test_a_stem_is_a_strided_convolution():
    stem, images = PatchStem(3, 11, 5), torch.randn(2, 3, 10, 15)
    expected = nn.functional.conv2d(images, stem.weight, stem.bias, stride=5).permute(0, 2, 3, 1)
    torch.testing.assert_close(stem(images), expected)


def test_rotary_positions_see_only_how_far_patches_are_apart():
    rows, columns = (x.flatten() for x in torch.meshgrid(torch.arange(4.0), torch.arange(5.0), indexing="ij"))
    q, k = torch.randn(16), torch.randn(16)
    rotation = rotation_2d(rows, columns, 16, 100.0)
    q, k = rotate_2d(torch.stack([q, k]).expand(1, 20, 1, 2, 16), rotation)[0, :, 0].unbind(
        1
    )  # (20, 16) each
    scores = (q @ k.mT).view(4, 5, 4, 5)
    torch.testing.assert_close(scores[0, 0, 2, 3], scores[1, 1, 3, 4], rtol=1e-4, atol=1e-4)
    by_row = Rotary(8, 100.0).rotate(q[:1, :8].expand(20, 8), positions=rows)  # the first patch is not turned
    torch.testing.assert_close(q[:, :8], by_row)
    by_column = Rotary(8, 100.0).rotate(q[:1, 8:].expand(20, 8), positions=columns)
    torch.testing.assert_close(q[:, 8:], by_column)


def test_a_class_token_is_not_turned():
    model = VisionTransformer(config(positions="rotary"))
    cos, sin = model._rotation((2, 2))
    assert torch.equal(cos[0], torch.ones(8))
    assert torch.equal(sin[0], torch.zeros(8))


def test_turns_of_a_finer_grid_lie_around_those_of_the_coarse_one():
    model = VisionTransformer(config(positions="rotary"))  # 2 x 2 patches
    cos, sin = model._rotation((4, 2))
    coarse = torch.tensor([-0.25, 0.25, 0.75, 1.25])  # each in the middle of its half of a patch
    rows, columns = (x.flatten() for x in torch.meshgrid(coarse, torch.arange(2.0), indexing="ij"))
    expected = rotation_2d(rows, columns, 8, 100.0)
    torch.testing.assert_close((cos[1:], sin[1:]), expected)


def test_positions_of_another_grid_are_interpolated_and_of_the_own_kept():
    table = torch.randn(3, 3, 5)
    assert resize_positions(table, (3, 3)) is table
    ramp = torch.arange(4.0)[:, None, None].expand(4, 4, 1)
    wide = resize_positions(ramp, (8, 4))
    assert wide.shape == (8, 4, 1)
    assert (wide[1:, 0, 0] > wide[:-1, 0, 0]).all()


@given(keep=st.floats(0.1, 0.9), seed=st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_stochastic_depth_drops_whole_images_and_scales_the_rest(keep, seed):
    torch.manual_seed(seed)
    block = Block(8, 2, 11, dropout=0.0, drop_path=1 - keep, norm_eps=1e-6, rotary=False)
    x, branch = torch.zeros(50, 3, 8), torch.ones(50, 3, 8)
    found = block.train()._added(x, branch)
    per_image = found.flatten(1)
    assert (per_image == per_image[:, :1]).all()
    values = per_image[:, 0].unique()
    assert all(
        torch.isclose(v, torch.tensor(0.0)) or torch.isclose(v, torch.tensor(1 / keep)) for v in values
    )
    assert torch.equal(block.eval()._added(x, branch), branch)


def test_earlier_layers_are_dropped_less():
    model = VisionTransformer(config(n_layers=3, drop_path=0.4))
    assert [layer.drop_path for layer in model.layers] == [0.0, 0.2, 0.4]


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_in_bfloat16_the_stream_stays_bfloat16_and_the_result_near(positions):
    model, images = drawn(VisionTransformer(config(positions=positions))), torch.randn(4, 3, 10, 10)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.encode(images).dtype == torch.bfloat16
        rounded = model(images)
    torch.testing.assert_close(rounded.float(), model(images), rtol=0.1, atol=0.1)


def test_a_fresh_model_says_that_all_classes_are_alike_and_places_are_not():
    model = VisionTransformer(SMALL)
    assert torch.equal(model(torch.randn(2, 3, 10, 10)), torch.zeros(2, 7))
    for drawn_at_random in (model.token, model.positions):
        assert 0.01 < float(drawn_at_random.detach().std()) < 0.03


def test_predict_takes_bytes_in_batches_and_averages_the_mirror_image():
    model = drawn(VisionTransformer(SMALL))
    images = torch.randint(0, 256, (5, 3, 10, 10), dtype=torch.uint8)
    x = images.float() / 127.5 - 1
    with torch.no_grad():
        one, other = model(x), model(x.flip(-1))
    torch.testing.assert_close(model.predict(images, batch_size=2), one)
    torch.testing.assert_close(model.predict(images, views=2, batch_size=3), (one + other) / 2)
    assert model.predict(images[:0]).shape == (0, 7)


def test_it_is_saved_and_loaded(tmp_path):
    model, images = drawn(VisionTransformer(config(positions="sinusoidal"))), torch.randn(1, 3, 10, 10)
    model.save(tmp_path)
    loaded = VisionTransformer.load(tmp_path)
    assert loaded.config == model.config
    assert torch.equal(loaded(images), model(images))


def test_every_layer_can_be_watched():
    model = drawn(VisionTransformer(config(positions="rotary")))
    with sl.watch(model) as seen:
        model(torch.randn(1, 3, 10, 10))
    assert seen.names() == ["layers.0.self_attn", "layers.1.self_attn"]


@pytest.mark.parametrize(("size", "millions"), [("micro", 0.1), ("tiny", 5.5), ("small", 22), ("base", 86)])
def test_named_sizes_are_the_papers(size, millions):
    base = VisionTransformerConfig(image_size=224, patch=16, n_classes=10)
    with torch.device("meta"):
        model = VisionTransformer.sized(size, base)
    n = sum(p.numel() for p in model.parameters()) / 1e6
    assert n == pytest.approx(millions, rel=0.02 if size != "micro" else 0.7)
    assert model.config.d_model == SIZES[size].d_model


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image_size": 28, "patch": 5}, "patch=5 for image_size=28; 1, 2, 4, 7, 14, 28 do"),
        (
            {"image_size": 28, "patch": 7, "stem": "conv"},
            "power of two, got 7 for image_size=28; 1, 2, 4 would",
        ),
        ({"n_heads": 5}, "n_heads=5 for d_model=24"),
        ({"d_model": 18, "positions": "rotary"}, "multiple of 4, got 6"),
        ({"d_model": 21, "positions": "sinusoidal"}, "even d_model, got 21"),
        ({"stem": "patchs"}, "did you mean 'patches'"),
        ({"pool": "max"}, "unknown pool 'max'"),
        ({"positions": "none"}, "unknown positions 'none'"),
        ({"drop_path": 1.0}, "drop_path must be at least 0 and below 1, got 1.0"),
        ({"n_layers": 0}, "n_layers must be at least 1, got 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        dataclasses.replace(SMALL, **changes)


@pytest.mark.bad_input
def test_images_that_do_not_fit_are_refused():
    model = VisionTransformer(SMALL)
    with pytest.raises(ValueError, match=r"got 12 x 10 pixels; resize it to 10 x 10"):
        model(torch.zeros(1, 3, 12, 10))
    with pytest.raises(ValueError, match=r"C=3 channels, got \(1, 1, 10, 10\)"):
        model(torch.zeros(1, 1, 10, 10))
    with pytest.raises(TypeError, match=r"normalised floats, got torch\.uint8"):
        model(torch.zeros(1, 3, 10, 10, dtype=torch.uint8))
    with pytest.raises(ValueError, match="unknown size 'huge'"):
        VisionTransformer.sized("huge", SMALL)
