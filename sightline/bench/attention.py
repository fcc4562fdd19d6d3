"""``bench attention``: the function and the modules against torch's, in time, memory and exactness.

On the CPU in float32, on a GPU in bfloat16; the sizes are in ``sizes.py``. The function's peers are
``F.scaled_dot_product_attention`` as it comes and, on a GPU, held to each of its kernels: torch's own choice
is not always the fastest.
"""

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import sightline as sl
from sightline.bench import linear, modules
from sightline.bench.case import OURS, Case, Comparison, Contestant, TimedCase
from sightline.bench.context import combine_contexts
from sightline.bench.sizes import Sizes, bar
from sightline.shapes import Float

_BACKENDS = {
    "torch cudnn": SDPBackend.CUDNN_ATTENTION,
    "torch flash": SDPBackend.FLASH_ATTENTION,
    "torch efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def cases(device: torch.device, *, quick: bool = False, sizes: Sizes | None = None) -> list[Case]:
    """List the cases, shortest inputs first.

    Args:
        device: Where to measure.
        quick: Leave out the long inputs, and all but one of the cases that measure memory.
        sizes: Sizes of your own.
    """
    sizes = Sizes.of(device, quick=quick) if sizes is None else sizes
    listed: list[Case] = []
    for length in sizes.lengths:
        listed += _function_cases(sizes, length)
        listed += modules.cases(sizes, length)
    memory_cases = linear.cases(sizes)
    return [*listed, *(memory_cases[:1] if quick else memory_cases)]


def _function_cases(sizes: Sizes, length: int) -> Iterator[TimedCase]:
    for d_head in sizes.widths:
        for causal in (False, True):
            for backward in (False, True):
                words = (
                    sizes.device,
                    "attention",
                    "forward+backward" if backward else "forward",
                    f"T={length} D={d_head}",
                )
                yield TimedCase(
                    name=" ".join(map(str, words)) + " causal" * causal,
                    device=sizes.device,
                    bar=bar(length),
                    setup=partial(compare_function, sizes, length, d_head, causal=causal, backward=backward),
                )


def compare_function(sizes: Sizes, length: int, d_head: int, *, causal: bool, backward: bool) -> Comparison:
    """Draw queries, keys and values, and build ``sl.attention`` and its peers."""
    shape = (sizes.batch(length), sizes.n_heads, length, d_head)
    q, k, v = (sizes.draw(seed, *shape).requires_grad_(backward) for seed in range(3))
    upstream = sizes.draw(3, *shape)

    def results(output: Tensor) -> tuple[Tensor, ...]:
        return (output, *torch.autograd.grad(output, (q, k, v), upstream)) if backward else (output,)

    def ours() -> tuple[Tensor, ...]:
        return results(sl.attention(q, k, v, sl.masks.causal() if causal else None))

    def theirs() -> tuple[Tensor, ...]:
        return results(F.scaled_dot_product_attention(q, k, v, is_causal=causal))

    context = torch.enable_grad if backward else torch.no_grad
    contestants = [
        Contestant(name=OURS, run=ours, context=context),
        Contestant(name="torch", run=theirs, context=context),
    ]
    if sizes.device.type == "cuda":
        for name, backend in _BACKENDS.items():
            only = combine_contexts(context, partial(sdpa_kernel, backend))
            contestants.append(Contestant(name=name, run=theirs, context=only))
    if not sizes.checkable(length):
        return Comparison(contestants=tuple(contestants), notes=("too large for a float64 check",))
    exact = partial(_exact, q, k, v, upstream, causal=causal, backward=backward)
    return Comparison(contestants=tuple(contestants), exact=exact)


def _exact(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B H S D"],
    v: Float[Tensor, "B H S D"],
    upstream: Float[Tensor, "B H T D"],
    *,
    causal: bool,
    backward: bool,
) -> tuple[Tensor, ...]:
    """Compute the equation, and its gradients, in float64."""
    q, k, v = inputs = tuple(x.detach().double().requires_grad_(backward) for x in (q, k, v))
    mask = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device).tril() if causal else None
    output, _ = sl.reference.scaled_dot_product_attention(q, k, v, mask)
    if not backward:
        return (output,)
    return (output.detach(), *torch.autograd.grad(output, inputs, upstream.double()))
