"""Sights and weights are kept as safetensors."""

from pathlib import Path

import torch

import sightline as sl

sight = sl.look(*torch.randn(3, 1, 11, 5))
sight.save("sight.safetensors")
assert torch.equal(sl.Sight.load("sight.safetensors").entropy, sight.entropy)
config = sl.models.CaptionerConfig(
    vocab_size=13, image_size=20, patch=10, d_model=6, n_heads=2, n_layers=1, d_ff=7
)
sl.models.Captioner(config).save("captioner")
assert list(Path("captioner").glob("*.safetensors"))
sl.models.VisionTransformer.load("run")
print("Sight.save, Sight.load, Model.save, Model.load")
