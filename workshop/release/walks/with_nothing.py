"""torch and numpy alone: the mechanism and the look."""

import importlib.util

import torch
from refusals import command, refuses

import sightline as sl

for absent in (
    "jaxtyping",
    "matplotlib",
    "PIL",
    "rich",
    "safetensors",
    "tokenizers",
    "transformers",
    "typer",
):
    assert importlib.util.find_spec(absent) is None, absent

q, k, v = torch.randn(3, 2, 5, 13, 7)
masks = (
    sl.masks.causal(),
    sl.masks.window(2, 0),
    sl.masks.padding([13, 11]),
    sl.masks.causal() & sl.masks.padding([13, 7]),
)
for mask in masks:
    output = sl.attention(q, k, v, mask)
    sight = sl.look(q, k, v, mask)
    assert torch.equal(sight.output, output)
    _, weights = sl.reference.scaled_dot_product_attention(q, k, v, mask.dense(13, 13))
    assert torch.allclose(sight.received, weights.sum(-2), atol=1e-5)
    assert torch.allclose(sight.rows([3]), weights[..., [3], :], atol=1e-5)
sl.attention(q, k, v, score=sl.scores.Additive(7, 7, 5))
sl.positions.sinusoidal(11, 6)
model = sl.nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
inputs = torch.randn(1, 5, 8), torch.randn(1, 3, 8)
with sl.watch(model, grad=True) as seen:
    model(*inputs).sum().backward()
assert seen[seen.names()[0]].importance.shape[-1] == 2
with sl.edit(model, layers="*", heads=[0], ablate="zero"):
    model(*inputs)
sl.align(seen[seen.names()[-1]])
monitor = sl.Monitor(model, every=1)
sl.models.VisionTransformer  # noqa: B018  the models are built; to keep one needs safetensors
refuses("show", lambda: sl.show.page)
refuses("look", lambda: sight.save("sight.safetensors"))
command("--help", refused="cli")
print("attention, masks, scores, positions, layers; look, watch, edit, align, Monitor")
