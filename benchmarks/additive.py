"""Attention by additive scores, beside the equation in plain PyTorch, eager and compiled.

    weights = softmax(wᵀ tanh(W k + V q))        output = weights @ v

Every contestant projects q and k itself. The peers store the hidden layer, T x S x d_attn numbers, for which
the longest cases are too long.
"""

from collections.abc import Callable
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

import sightline as sl
from benchmarks.harness import OURS, Case, Contest, draw

_WIDTH = 256
_MOST_HIDDEN, _MOST_EXACT = 20e9, 8e9  # bytes that a peer is asked to store; of an item in float64
ON_GPU = ((8, 1024, 256), (2, 4096, 256), (1, 16384, 256))  # B, T, d_attn
ON_CPU = ((2, 128, 64), (1, 512, 64))


def cases(device: torch.device, quick: bool) -> list[Case]:
    """List the cases; ``quick`` takes the shortest alone."""
    gpu = device.type == "cuda"
    sizes = (ON_GPU if gpu else ON_CPU)[: 1 if quick else None]
    dtypes = (torch.bfloat16, torch.float32) if gpu else (torch.float32,)
    found = []
    for dtype, size, backward in product(dtypes, sizes, (False, True)):
        shape = "B={} T={} r={}".format(*size)
        name = f"additive {'step' if backward else 'forward'} {str(dtype).removeprefix('torch.')} {shape}"
        most = (0.67 if backward else 0.5) if gpu else 2.0  # a kernel is what these are for
        setup = partial(compare, device, dtype, *size, backward=backward)
        found.append(Case(name=name, most=most, setup=setup))
    return found


def compare(
    device: torch.device, dtype: torch.dtype, b: int, t: int, d_attn: int, *, backward: bool
) -> Contest:
    """Return ours beside the equation."""
    shape = (b, t, _WIDTH)
    q, k, v, upstream = (draw(i, *shape, device=device, dtype=dtype) for i in range(4))
    torch.manual_seed(0)
    score = sl.scores.Additive(_WIDTH, _WIDTH, d_attn).to(device, dtype)
    tensors = [x.detach().requires_grad_(backward) for x in (q, k, v, score.W, score.V, score.v)]
    parameters = [torch.nn.Parameter(x.detach(), backward) for x in tensors[3:]]
    score.W, score.V, score.v = parameters

    def ours(q: Tensor, k: Tensor, v: Tensor, *_: Tensor) -> Tensor:
        return sl.attention(q, k, v, score=score)

    def results(attend: Callable[..., Tensor], inputs: list[Tensor], upstream: Tensor) -> list[Tensor]:
        output = attend(*inputs)
        return [output.detach(), *(torch.autograd.grad(output, inputs, upstream) if backward else ())]

    def exact() -> list[Tensor]:
        """One item of the batch after the other, since all would not fit."""
        items = []
        for i in range(b):
            inputs = [x.detach()[i : i + 1] for x in tensors[:3]] + [x.detach() for x in tensors[3:]]
            inputs = [x.double().requires_grad_(backward) for x in inputs]
            with torch.set_grad_enabled(backward):
                items.append(results(equation, inputs, upstream[i : i + 1].double()))
        parts = list(zip(*items, strict=True))  # output, then the gradients of q, k, v, W, V and w
        return [torch.cat(x) for x in parts[:4]] + [torch.stack(x).sum(0) for x in parts[4:]]

    runs = {OURS: partial(results, ours, [*tensors[:3], *parameters], upstream)}
    hidden = b * t * t * d_attn
    if hidden * dtype.itemsize > _MOST_HIDDEN:
        note = f"the hidden layer takes {hidden * dtype.itemsize / 1e9:.0f} GB: no peer, no float64 check"
        return Contest(runs=runs, grad=backward, notes=(note,))
    runs["eager"] = partial(results, equation, tensors, upstream)
    runs["torch.compile"] = partial(results, torch.compile(equation, dynamic=False), tensors, upstream)
    slack = 2e-2 if dtype is torch.bfloat16 else 1e-5
    checked = 8 * hidden <= b * _MOST_EXACT
    return Contest(runs=runs, grad=backward, exact=exact if checked else None, slack=slack)


def equation(q: Tensor, k: Tensor, v: Tensor, W: Tensor, V: Tensor, w: Tensor) -> Tensor:
    """Write the equation down."""
    hidden = torch.tanh(F.linear(q, V).unsqueeze(-2) + F.linear(k, W).unsqueeze(-3))
    return torch.softmax(hidden @ w, -1) @ v
