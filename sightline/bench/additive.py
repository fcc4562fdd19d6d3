"""``bench additive``: attention by additive scores, beside the equation in plain PyTorch, eager and compiled.

    weights = softmax(wᵀ tanh(W k + V q))        output = weights @ v

Every contestant is given the same q, k, v and parameters and projects them itself. The peers store the hidden
layer, T x S x d_attn numbers; the last cases are too long for that, and show what ours needs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

import sightline as sl
from sightline.bench.case import OURS, Case, Comparison, Contestant, TimedCase
from sightline.shapes import Float

FORWARD_BAR = 2.0
STEP_BAR = 1.5
CPU_BAR = 0.5  # a kernel is what the bars are for
_MOST_HIDDEN = 20e9  # bytes of hidden values that a peer is asked to store, a few times over
_MOST_EXACT = 8e9  # bytes of float64 for one item of a batch, likewise
_D_MODEL = 256
_SLACK = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@dataclass(frozen=True, kw_only=True, slots=True)
class AdditiveSize:
    """What to draw: B sequences of T = S positions, and the width of the hidden layer."""

    batch: int
    length: int
    d_attn: int

    @property
    def hidden(self) -> int:
        """How many hidden values there are."""
        return self.batch * self.length**2 * self.d_attn


ON_GPU = (
    AdditiveSize(batch=8, length=1024, d_attn=256),
    AdditiveSize(batch=2, length=4096, d_attn=256),
    AdditiveSize(batch=1, length=16384, d_attn=256),
)
ON_CPU = (AdditiveSize(batch=2, length=128, d_attn=64), AdditiveSize(batch=1, length=512, d_attn=64))


def cases(
    device: torch.device, *, quick: bool = False, sizes: tuple[AdditiveSize, ...] | None = None
) -> list[Case]:
    """List the cases.

    Args:
        device: Where to measure.
        quick: Leave out all sizes but the first.
        sizes: Sizes of your own.
    """
    on_gpu = device.type == "cuda"
    if sizes is None:
        sizes = ON_GPU if on_gpu else ON_CPU
        sizes = sizes[:1] if quick else sizes
    listed: list[Case] = []
    for dtype in (torch.bfloat16, torch.float32) if on_gpu else (torch.float32,):
        for size in sizes:
            for backward in (False, True):
                words = f"{str(dtype).removeprefix('torch.')} B={size.batch} T={size.length} r={size.d_attn}"
                bar = (STEP_BAR if backward else FORWARD_BAR) if on_gpu else CPU_BAR
                name = f"{device} additive {'step' if backward else 'forward'} {words}"
                setup = partial(compare, device, dtype, size, backward=backward)
                listed.append(TimedCase(name=name, device=device, bar=bar, setup=setup))
    return listed


def compare(device: torch.device, dtype: torch.dtype, size: AdditiveSize, *, backward: bool) -> Comparison:
    """Draw inputs and parameters, and build the contestants."""
    generator = torch.Generator(device).manual_seed(0)
    shape = (size.batch, size.length, _D_MODEL)
    q, k, v, upstream = (torch.randn(shape, generator=generator, device=device).to(dtype) for _ in range(4))
    torch.manual_seed(0)
    score = sl.scores.Additive(_D_MODEL, _D_MODEL, size.d_attn).to(device, dtype)
    tensors = [q, k, v, score.W, score.V, score.v]
    tensors = [x.detach().requires_grad_(backward) for x in tensors]
    score.W, score.V, score.v = (torch.nn.Parameter(x.detach(), backward) for x in tensors[3:])
    ours = [*tensors[:3], score.W, score.V, score.v]

    def attend(q: Tensor, k: Tensor, v: Tensor, *_: Tensor) -> Tensor:
        return sl.attention(q, k, v, score=score)

    def contestant(name: str, function: Callable[..., Tensor], inputs: list[Tensor]) -> Contestant:
        run = partial(step, function, inputs, upstream) if backward else partial(forward, function, inputs)
        return Contestant(name=name, run=run, context=torch.enable_grad if backward else torch.no_grad)

    contestants = [contestant(OURS, attend, ours)]
    stored = size.hidden * dtype.itemsize
    if stored > _MOST_HIDDEN:
        note = f"the hidden layer takes {stored / 1e9:.0f} GB: no peer, no float64 check"
        return Comparison(contestants=tuple(contestants), notes=(note,))
    contestants.append(contestant("eager", eager, tensors))
    contestants.append(contestant("torch.compile", torch.compile(eager, dynamic=False), tensors))
    if 8 * size.hidden > size.batch * _MOST_EXACT:
        return Comparison(contestants=tuple(contestants), notes=("too large for a float64 check",))
    exact = partial(by_item, tensors, upstream, backward=backward)
    return Comparison(contestants=tuple(contestants), exact=exact, slack=_SLACK[dtype])


def eager(
    q: Float[Tensor, "B T E"],
    k: Float[Tensor, "B S E"],
    v: Float[Tensor, "B S E"],
    W: Float[Tensor, "r E"],  # noqa: N803 (the paper's letters)
    V: Float[Tensor, "r E"],  # noqa: N803
    w: Float[Tensor, " r"],
) -> Float[Tensor, "B T E"]:
    """Write the equation down."""
    hidden = torch.tanh(F.linear(q, V).unsqueeze(-2) + F.linear(k, W).unsqueeze(-3))
    return torch.softmax(hidden @ w, -1) @ v


def forward(function: Callable[..., Tensor], inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Give the output."""
    return (function(*inputs),)


def step(function: Callable[..., Tensor], inputs: list[Tensor], upstream: Tensor) -> tuple[Tensor, ...]:
    """Give the output and the gradients of everything."""
    output = function(*inputs)
    return output.detach(), *torch.autograd.grad(output, inputs, upstream)


def by_item(tensors: list[Tensor], upstream: Tensor, *, backward: bool) -> tuple[Tensor, ...]:
    """Give the same in float64, one item of the batch after the other, since all would not fit."""
    found = []
    for i in range(upstream.size(0)):
        inputs = [x.detach()[i : i + 1] for x in tensors[:3]] + [x.detach() for x in tensors[3:]]
        inputs = [x.double().requires_grad_(backward) for x in inputs]
        with torch.set_grad_enabled(backward):
            item = upstream[i : i + 1].double()
            found.append(step(eager, inputs, item) if backward else forward(eager, inputs))
    whole = [torch.cat(parts) for parts in list(zip(*found, strict=True))[:4]]
    return *whole, *(torch.stack(parts).sum(0) for parts in list(zip(*found, strict=True))[4:])
