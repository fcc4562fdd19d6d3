"""Memory of long attention on the CPU: linear in the length, where the T x S matrix would be quadratic.

The functions here are what ``memory.py`` calls in a fresh process: each gets its inputs ready, runs once on
short ones, so that what torch sets up on first use is not counted, and hands back the call.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import sightline as sl
from sightline.bench.case import OURS
from sightline.bench.memory import MemoryCase
from sightline.bench.sizes import Sizes

MEMORY_BAR = 200_000_000
_D_HEAD = 64
_SHORT = 64


def cases(sizes: Sizes) -> list[MemoryCase]:
    """List the cases: one head, causal, forward and backward, and with padding, which no kernel knows."""
    length = sizes.memory_length
    if length is None:
        return []
    matrix = f"the {length} x {length} matrix in float32 takes {4 * length**2 / 1e6:.0f} MB"
    here = "sightline.bench.linear"
    return [
        MemoryCase(
            name=f"{sizes.device} memory {words}",
            targets={OURS: f"{here}:ours"} | ({} if padded else {"torch": f"{here}:theirs"}),
            arguments={"length": length, "backward": backward} | ({"padded": True} if padded else {}),
            memory_bar=MEMORY_BAR,
            notes=(matrix,),
        )
        for words, backward, padded in (
            (f"forward T={length} D={_D_HEAD} causal", False, False),
            (f"forward+backward T={length} D={_D_HEAD} causal", True, False),
            (f"forward T={length} D={_D_HEAD} causal padded", False, True),
        )
    ]


def ours(length: int, *, backward: bool, padded: bool = False) -> Callable[[], object]:
    """Get ``sl.attention`` ready."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = sl.masks.causal()
        if padded:
            mask = mask & sl.masks.padding(torch.tensor([k.size(-2) - 1]))
        return sl.attention(q, k, v, mask)

    return _ready(attend, length, backward=backward)


def theirs(length: int, *, backward: bool) -> Callable[[], object]:
    """Get torch's function ready."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return _ready(attend, length, backward=backward)


def _ready(attend: Callable[..., Tensor], length: int, *, backward: bool) -> Callable[[], object]:
    def run(inputs: list[Tensor]) -> object:
        output = attend(*inputs)
        return torch.autograd.grad(output.sum(), inputs) if backward else output

    run(_inputs(_SHORT, backward=backward))
    inputs = _inputs(length, backward=backward)
    return lambda: run(inputs)


def _inputs(length: int, *, backward: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(1, 1, length, _D_HEAD, generator=generator).requires_grad_(backward) for _ in range(3)
    ]
