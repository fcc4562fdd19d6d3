"""What the tests of the Hopper kernels have in common: inputs on the GPU, and every mask that they take."""

import pytest
import torch

from sightline.attention.masks import Mask, causal, padding, window
from sightline.look.inputs import ScoreInputs

ON_HOPPER = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9,
        reason="needs a GPU of Hopper's kind",
    ),
]
MASKS = {  # for two items and a number of keys
    "none": lambda s: Mask(),
    "causal": lambda s: causal(),
    "causal from the start": lambda s: causal(align="start"),
    "window": lambda s: window(101, 67),
    "padding": lambda s: padding(torch.tensor([s, min(s, 149)], device="cuda")),
    "window and padding": lambda s: window(131, 3) & padding(torch.tensor([7, s - 1], device="cuda")),
}


def pairs_of(shape, mask, *, dtype=torch.bfloat16, kv_heads=None):
    b, h, t, s, d = shape
    generator = torch.Generator().manual_seed(t + s)
    q = torch.randn(b, h, t, d, generator=generator).to("cuda", dtype)
    k = torch.randn(b, kv_heads or h, s, d, generator=generator).to("cuda", dtype)
    return ScoreInputs(q, k, mask.fitted((b, h), t, s), d**-0.5)
