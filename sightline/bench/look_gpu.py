"""``bench look`` on a GPU: all that is seen, parts of it, and gradients, beside the blind kernel.

Beside blind a ratio says what seeing costs, in times of the blind kernel, and its bar is the most it may;
beside eager and torch it says how many times as fast ours is, and its bar is the least.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

import sightline as sl
from sightline.bench import attention, modules
from sightline.bench.case import OURS, Case, Comparison, Contestant, TimedCase
from sightline.bench.eager import eager
from sightline.bench.result import CostBar
from sightline.bench.sizes import Sizes

_CELLS = 64
_SLACK = 1e-4  # of what is seen; the output itself has no more digits than bfloat16
_AT_ONCE = 1024  # queries, in float64
_EAGER_BARS = {False: 3.5, True: 10.0}  # full, causal
_TOP_MOST, _TRAIN_MOST = 1.2, 1.7
_SHORT_BAR = 0.95  # of torch's speed, where the GPU waits for Python


class Shape(NamedTuple):
    """B, H, T = S, D."""

    b: int
    h: int
    t: int
    d: int

    def __str__(self) -> str:
        return f"B={self.b} H={self.h} T={self.t} D={self.d}"

    def draw(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, the same each time."""
        generator = torch.Generator(device).manual_seed(self.t)
        q, k, v = (
            torch.randn(*self, generator=generator, device=device, dtype=torch.bfloat16) for _ in range(3)
        )
        return q, k, v


# Shapes, and the most that everything and rows only may take, in times of the blind kernel.
SHAPES: dict[Shape, tuple[float | None, float | None]] = {
    Shape(4, 16, 4096, 64): (1.85, None),
    Shape(4, 16, 4096, 128): (1.75, None),
    Shape(1, 16, 16384, 128): (1.6, 1.5),
    Shape(1, 4, 65536, 128): (1.55, None),
}
UNEVEN = {Shape(2, 8, 1024, 128): 4.0, Shape(2, 8, 2048, 128): 3.0, Shape(2, 8, 5003, 128): 2.0}  # with a map
LONG = Shape(1, 16, 16384, 128)
GROWING = tuple(Shape(1, 16, 1 << n, 128) for n in range(10, 17))  # the README's plot


def cases(device: torch.device, *, quick: bool = False) -> list[Case]:
    """List the cases; ``quick`` leaves out the long inputs."""
    listed: list[Case] = []
    for causal in (False, True):
        case = partial(_case, causal=causal, device=device)
        shapes = {shape: most for shape, most in SHAPES.items() if not quick or shape.t <= 4096}
        for shape, (everything, rows) in shapes.items():
            listed.append(case("look", "blind", shape, CostBar(peer="blind", most=everything)))
            listed.append(case("rows only", "blind", shape, CostBar(peer="blind", most=rows)))
        for shape, most in UNEVEN.items():
            listed.append(case("look", "blind", shape, CostBar(peer="blind", most=most)))
        long = max(shapes) if quick else LONG
        listed.append(case("top 8", "everything", long, CostBar(peer="everything", most=_TOP_MOST)))
        listed.append(case("training received", "blind", long, CostBar(peer="blind", most=_TRAIN_MOST)))
        listed.append(case("look", "eager", long, None, bar=_EAGER_BARS[causal]))
    if not quick:
        plot = CostBar(peer="blind")
        listed += [
            _case("look", "blind and eager", shape, plot, causal=True, device=device) for shape in GROWING
        ]
    return listed + _beside_torch(Sizes.of(device, quick=quick))


def _case(
    what: str,
    peer: str,
    shape: Shape,
    cost: CostBar | None,
    *,
    causal: bool,
    device: torch.device,
    bar: float | None = None,
) -> TimedCase:
    return TimedCase(
        name=f"{device} {what} beside {peer} {shape}{' causal' * causal}",
        device=device,
        setup=partial(compare, what, peer, shape, causal, device),
        bar=bar,
        cost=cost,
    )


def _beside_torch(sizes: Sizes) -> list[Case]:
    """Averaged weights of ``MultiheadAttention`` in eval, and short attention forward and backward."""
    listed: list[Case] = []
    use = modules.ModuleUse(module="multihead", training=False, weights=True)
    for length in sizes.lengths:
        setup = partial(modules.compare_module, sizes, length, use)
        name = use.case_name(sizes.device, length)
        listed.append(TimedCase(name=name, device=sizes.device, setup=setup, bar=1.0))
    short = sizes.lengths[0]
    for d_head in sizes.widths:
        for causal in (False, True):
            for words, backward in (("forward", False), ("forward+backward", True)):
                setup = partial(
                    attention.compare_function, sizes, short, d_head, causal=causal, backward=backward
                )
                name = f"{sizes.device} attention {words} T={short} D={d_head}{' causal' * causal}"
                listed.append(TimedCase(name=name, device=sizes.device, setup=setup, bar=_SHORT_BAR))
    return listed


def compare(what: str, peer: str, shape: Shape, causal: bool, device: torch.device) -> Comparison:
    """Draw queries, keys and values, and return ours beside its peers."""
    q, k, v = shape.draw(device)
    mask = sl.masks.causal() if causal else None
    if what == "training received":
        return _training(q, k, v, mask)
    cells = min(_CELLS, shape.t)
    looks = {
        "look": sl.Look(map=cells),
        "rows only": sl.Look(received=False),
        "top 8": sl.Look(received=False, entropy=False, peak=False, top=min(8, shape.t)),
    }

    def seen(look: sl.Look) -> tuple[Tensor, ...]:
        sight = sl.look(q, k, v, mask, measure=look, keep=False)
        named = sight.statistics
        return tuple(named[n] for n in ("output", "received", "entropy", "peak", "map", "top") if n in named)

    peers: dict[str, Callable[[], tuple[Tensor, ...]]] = {
        "blind": lambda: (sl.attention(q, k, v, mask),),
        "eager": partial(eager, q, k, v, cells, causal=causal, stored=q.dtype),
        "everything": partial(seen, looks["look"]),
    }
    notes = {
        "blind": "the blind kernel gives the output alone",
        "eager": "eager stores the matrix",
        "everything": "everything: all of the look",
    }
    chosen = peer.split(" and ")
    checked = first_head if what == "look" else None
    contestants = [
        Contestant(name=OURS, run=partial(seen, looks[what]), context=torch.no_grad, checked=checked),
        *(
            Contestant(
                name=name,
                run=peers[name],
                context=torch.no_grad,
                checked=first_head if name == "eager" else None,
            )
            for name in chosen
        ),
    ]
    exact = partial(exact_stats, q, k, cells, causal=causal) if checked else None
    shown_notes = tuple(notes[name] for name in chosen)
    return Comparison(contestants=tuple(contestants), exact=exact, slack=_SLACK, notes=shown_notes)


def first_head(results: Sequence[Tensor]) -> Sequence[Tensor]:
    """What was seen of the first head of the first item, without the output."""
    return [x[:1, :1] for x in results[1:]]


def exact_stats(q: Tensor, k: Tensor, cells: int, *, causal: bool) -> tuple[Tensor, ...]:
    """received, entropy, peak and map of the first head in float64, some queries at a time."""
    q, k = q[:1, :1].double(), k[:1, :1].double()
    t, s = q.size(2), k.size(2)
    received, picture = q.new_zeros(1, 1, s), q.new_zeros(1, 1, cells, cells)
    entropy, peak = q.new_empty(1, 1, t), q.new_empty(1, 1, t)
    keys = torch.arange(s, device=q.device)
    rows, columns = (_membership(n, cells, q) for n in (t, s))
    for first in range(0, t, _AT_ONCE):
        queries = torch.arange(first, min(first + _AT_ONCE, t), device=q.device)
        scores = (q[:, :, queries] @ k.mT) * q.size(-1) ** -0.5
        if causal:
            scores.masked_fill_(keys > queries[:, None], -torch.inf)
        weights = scores.softmax(-1)
        received += weights.sum(2)
        entropy[:, :, queries] = torch.special.entr(weights).sum(-1)
        peak[:, :, queries] = weights.amax(-1)
        picture += rows[queries].mT @ (weights @ columns)
    return received, entropy, peak, picture / (rows.sum(0)[:, None] * columns.sum(0))


def _membership(n: int, cells: int, like: Tensor) -> Tensor:
    """(n, cells): one where a position falls into a cell; cell i begins at ⌊i · n / cells⌋."""
    position = torch.arange(n, device=like.device)
    return nn.functional.one_hot(((position + 1) * cells - 1) // n, cells).to(like.dtype)


def _training(q: Tensor, k: Tensor, v: Tensor, mask: sl.Mask | None) -> Comparison:
    """A step of attention alone, forward and backward: with a loss on received, and without."""
    leaves = [x.requires_grad_() for x in (q, k, v)]
    upstream = torch.randn_like(v)

    def step(loss: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss(), leaves)

    def with_received() -> Tensor:
        sight = sl.look(q, k, v, mask, measure=sl.Look(entropy=False, peak=False), keep=False)
        return (sight.output * upstream).sum() + (sight.received - 1).square().mean()

    def blind() -> Tensor:
        return (sl.attention(q, k, v, mask) * upstream).sum()

    return Comparison(
        contestants=(
            Contestant(name=OURS, run=partial(step, with_received)),
            Contestant(name="blind", run=partial(step, blind)),
        ),
        notes=("a step of attention alone: no projections, no feed-forward",),
    )
