"""Vision transformers of timm, where it is installed: its Attention calls the fused function, and is seen."""

import pytest
import torch
from torch import nn

import sightline as sl
from tests.look.look_oracle import agrees, matrix, randn
from tests.watch.timm_models import import_timm

timm = import_timm()
Attention = timm.layers.Attention
VisionTransformer = timm.models.VisionTransformer

E, H, B, SIZE, PATCH = 12, 3, 2, 20, 4
T = (SIZE // PATCH) ** 2 + 1  # patches and the class token


def vit(**options):
    torch.manual_seed(0)
    sizes = {"embed_dim": E, "num_heads": H, "depth": 2, "patch_size": PATCH, "img_size": SIZE}
    model = VisionTransformer(**sizes, num_classes=5, **options)
    for module in model.modules():
        if isinstance(module, Attention):
            module.fused_attn = True
    return model


def run(model, images):
    torch.manual_seed(1)
    model.zero_grad()
    out = model(images)
    out.square().sum().backward()
    return [out.detach(), *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("options", [{}, {"qk_norm": True}, {"attn_drop_rate": 0.2}], ids=str)
@pytest.mark.parametrize("train", [True, False])
def test_a_vision_transformer(options, train):
    model, images = vit(**options).train(train), randn(B, 3, SIZE, SIZE, dtype=torch.float32)
    blind = run(model, images)
    with sl.watch(model) as seen:
        watched = run(model, images)
    assert all((x is None and y is None) or torch.equal(x, y) for x, y in zip(blind, watched, strict=True))
    assert seen.names() == ["blocks.0.attn", "blocks.1.attn"]
    assert seen["blocks.1.attn"].received.shape == (B, H, T)


def test_its_weights_are_those_of_its_own_equation():
    module, x = Attention(E, H).eval(), randn(B, 7, E, dtype=torch.float32)
    module.fused_attn = True
    with torch.no_grad(), sl.watch(module, keep=True) as seen:
        module(x)
        q, k, _ = nn.functional.linear(x, module.qkv.weight, module.qkv.bias).chunk(3, -1)
    q, k = (y.unflatten(-1, (H, -1)).transpose(1, 2).double() for y in (q, k))
    agrees(seen[""], *matrix(q, k))


def test_what_is_not_fused_is_seen_by_its_weights():
    model, x = vit(), randn(B, 3, SIZE, SIZE, dtype=torch.float32)
    with torch.no_grad(), sl.watch(model) as fused:
        model(x)
    for module in model.modules():
        if isinstance(module, Attention):
            module.fused_attn = False
    with torch.no_grad(), sl.watch(model) as by_hand:
        model(x)
    assert by_hand.names() == fused.names()
    for name in fused.names():
        torch.testing.assert_close(by_hand[name].entropy, fused[name].entropy, rtol=1e-4, atol=1e-5)
