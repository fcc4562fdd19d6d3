"""What a Vision Transformer looked at, against the weights computed by hand."""

import math

import pytest
import torch

from sightline.data.augment import as_floats
from sightline.models.vit import VisionTransformer, VisionTransformerConfig
from sightline.models.vit_parts import rotate_2d
from sightline.tasks.classify.attention import ink_scores, patch_attention, patch_distances

B, LAYERS, H, PATCH, ROWS, COLUMNS = 3, 2, 2, 2, 3, 3


def model(pool="token", positions="learned"):
    torch.manual_seed(1)
    config = VisionTransformerConfig(
        n_classes=5,
        channels=1,
        image_size=6,
        patch=PATCH,
        d_model=8,
        n_heads=H,
        n_layers=LAYERS,
        d_ff=11,
        pool=pool,
        positions=positions,
    )
    made = VisionTransformer(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    return made


def images(b=B):
    return torch.randint(0, 256, (b, 1, 6, 6), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)


def by_hand(made, x):
    """The weights of every layer, (B, H, T, T), step by step."""
    found = []
    x = made.stem(as_floats(x))
    x = (x if made.positions is None else x + made.positions).flatten(1, 2)
    rotation = None if made.cos is None else (made.cos, made.sin)
    if made.token is not None:
        x = torch.cat([made.token.expand(len(x), 1, -1), x], 1)
    for layer in made.layers:
        h = layer.norm1(x)
        q, k, _ = torch.nn.functional.linear(
            h, layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias
        ).chunk(3, -1)
        q, k = (y.unflatten(-1, (H, -1)) for y in (q, k))  # (B, T, H, D) each
        if rotation is not None:
            q, k = rotate_2d(torch.stack([q, k], 2), rotation).unbind(2)
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        found.append((q @ k.mT * q.size(-1) ** -0.5).softmax(-1))
        x = layer(x, rotation)
    return found


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("pool", ["token", "mean"])
def test_patch_attention_is_what_the_weights_say(pool, positions):
    made, x = model(pool, positions), images()
    found = patch_attention(made, x)
    n = made.n_extra
    with torch.no_grad():
        weights = by_hand(made, x)
    mixed = torch.eye(ROWS * COLUMNS + n)
    apart = torch.tensor(
        [[((i // 3 - j // 3) ** 2 + (i % 3 - j % 3) ** 2) ** 0.5 * PATCH for j in range(9)] for i in range(9)]
    )
    for layer, w in enumerate(weights):
        asked = (w[:, :, 0] if n else w.mean(2))[..., n:]
        torch.testing.assert_close(found.heads[:, layer], asked / asked.sum(-1, keepdim=True))
        got = w[..., n:].sum((1, 2))
        torch.testing.assert_close(found.received[:, layer], got / got.sum(-1, keepdim=True))
        among = w[..., n:, n:] / w[..., n:, n:].sum(-1, keepdim=True)
        distances = patch_distances(list(found.layers.values())[layer][..., n:, n:], found.grid)
        torch.testing.assert_close(distances * PATCH, (among * apart).sum(-1).mean(-1))
        mixed = (0.5 * w.mean(1) + 0.5 * torch.eye(len(mixed[0] if mixed.dim() == 3 else mixed))) @ mixed
    row = (mixed[:, 0] if n else mixed.mean(1))[:, n:]
    torch.testing.assert_close(found.rollout, row / row.sum(-1, keepdim=True), rtol=1e-4, atol=1e-6)
    assert found.grid == (ROWS, COLUMNS)
    assert found.n_extra == n


def test_ink_is_the_mass_on_inked_patches_over_their_area():
    made, x = model(), images(7)
    x[0] = 0  # no ink, no vote
    x[1] = torch.tensor([255, 0]).repeat(3)  # half of full ink, which is just enough
    found = ink_scores(made, x, threshold=0.5, batch_size=3)
    mass, area = [], []
    for image in x[1:]:
        inked = torch.nn.functional.avg_pool2d(image[None].float() / 255, PATCH).flatten() >= 0.5
        if inked.any():
            mass.append(float(patch_attention(made, image[None]).rollout[0][inked].sum()))
            area.append(float(inked.float().mean()))
    assert found["ink"] == pytest.approx(sum(mass) / len(mass), rel=1e-4)
    assert found["ink_chance"] == pytest.approx(sum(area) / len(area))
    assert found["ink_ratio"] == pytest.approx(sum(mass) / sum(area), rel=1e-4)


def test_without_ink_there_is_no_score():
    found = ink_scores(model(), torch.zeros(2, 1, 6, 6, dtype=torch.uint8))
    assert list(found) == ["ink", "ink_chance", "ink_ratio"]
    assert all(math.isnan(value) for value in found.values())
