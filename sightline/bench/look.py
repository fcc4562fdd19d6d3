"""``bench look``: attention seen, beside attention blind and beside eager attention with the same statistics.

Everything is asked for: received, entropy, peak, where it is, and a 64 x 64 map. Beside the blind kernel a
ratio says what seeing costs, in times of not seeing, and the bar is the most it may; beside eager attention
it says how many times as fast it is, and the bar is the least.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

import sightline as sl
from sightline.bench import look_gpu, look_long, look_questions
from sightline.bench.case import OURS, Case, Comparison, Contestant, TimedCase
from sightline.bench.eager import eager
from sightline.bench.memory import MemoryCase
from sightline.bench.result import CostBar
from sightline.bench.sizes import Sizes

BLIND_BAR = CostBar(peer="blind", most=3.0)  # everything seen in three times the blind forward
EAGER_BAR = 2.0  # and in half of eager's time
MEMORY_BAR = 300_000_000
_CELLS = 64
_D_HEAD = 64
_HERE = "sightline.bench.look"


def cases(device: torch.device, *, quick: bool = False, sizes: Sizes | None = None) -> list[Case]:
    """List the cases.

    Args:
        device: Where to measure.
        quick: Leave out the long inputs, and all but one of the cases that measure memory.
        sizes: Sizes of your own.
    """
    if device.type == "cuda" and sizes is None:
        modules = (look_gpu, look_questions, look_long)
        return [case for module in modules for case in module.cases(device, quick=quick)]
    own_sizes = sizes is not None
    if sizes is None:
        sizes = Sizes.of(device, quick=quick).with_lengths((1024,) if quick else (1024, 4096))
    listed: list[Case] = []
    for length in sizes.lengths:
        for causal in (False, True):
            words = f"T={length} D={_D_HEAD}{' causal' * causal}"
            listed += [
                TimedCase(
                    name=f"{device} look beside {peer} {words}",
                    device=device,
                    setup=partial(compare, sizes, length, peer, causal=causal),
                    bar=EAGER_BAR if peer == "eager" else None,
                    cost=BLIND_BAR if peer == "blind" else None,
                )
                for peer in ("blind", "eager")
            ]
    if not own_sizes:
        listed += look_questions.cases(device, quick=quick)
        listed += look_long.cases(device, quick=quick)
    if sizes.memory_length is not None:
        listed += [memory_case(device, length) for length in ((32768,) if quick else (8192, 16384, 32768))]
    return listed


def compare(sizes: Sizes, length: int, peer: str, *, causal: bool) -> Comparison:
    """Draw queries, keys and values, and build the look and one peer."""
    shape = (sizes.batch(length), sizes.n_heads, length, _D_HEAD)
    q, k, v = (sizes.draw(seed, *shape) for seed in range(3))
    mask = sl.masks.causal() if causal else None
    cells = min(_CELLS, length)
    everything = sl.Look(map=cells)

    def seen() -> tuple[Tensor, ...]:
        sight = sl.look(q, k, v, mask, measure=everything, keep=False)
        return sight.output, sight.received, sight.entropy, sight.peak, sight.map(cells)

    def blind() -> tuple[Tensor, ...]:
        return (sl.attention(q, k, v, mask),)

    ours = Contestant(name=OURS, run=seen, context=torch.no_grad)
    if peer == "blind":
        other = Contestant(name="blind", run=blind, context=torch.no_grad)
        return Comparison(contestants=(ours, other), notes=("the blind kernel gives the output alone",))
    other = Contestant(name="eager", run=partial(eager, q, k, v, cells, causal=causal), context=torch.no_grad)
    exact = partial(eager, q.double(), k.double(), v.double(), cells, causal=causal)
    if not sizes.checkable(length):
        return Comparison(contestants=(ours, other), notes=("too large for a float64 check",))
    return Comparison(
        contestants=(ours, other), exact=exact, slack=1e-2 if q.dtype != torch.float32 else 1e-5
    )


def memory_case(device: torch.device, length: int) -> MemoryCase:
    """One head, everything seen: memory should grow with the length, not with its square."""
    matrix = f"the {length} x {length} matrix in float32 takes {4 * length**2 / 1e6:.0f} MB"
    return MemoryCase(
        name=f"{device} memory of a look T={length} D={_D_HEAD}",
        targets={OURS: f"{_HERE}:long_look"},
        arguments={"length": length},
        memory_bar=MEMORY_BAR,
        notes=(matrix,),
    )


def long_look(length: int) -> Callable[[], object]:
    """Get a look at a long sequence ready."""

    def ready(t: int) -> Callable[[], object]:
        generator = torch.Generator().manual_seed(0)
        q, k, v = (torch.randn(1, 1, t, _D_HEAD, generator=generator) for _ in range(3))
        return lambda: sl.look(q, k, v, measure=sl.Look(map=_CELLS), keep=False)

    ready(_CELLS)()  # what torch sets up on first use is not counted
    return ready(length)
