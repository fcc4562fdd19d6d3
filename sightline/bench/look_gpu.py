"""``bench look`` on a GPU: all that is seen, parts of it, and gradients, beside the fastest blind kernel."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

import sightline as sl
from sightline.bench.case import OURS, Case, Comparison, Contestant, TimedCase
from sightline.bench.eager import eager

_CELLS = 64
_SLACK = 1e-4  # of what is seen; the output itself has no more digits than bfloat16
_AT_ONCE = 1024  # queries, in float64
_EAGER_BARS = {False: 3.5, True: 10.0}  # full, causal
_ROWS_BAR, _TOP_BAR, _TRAIN_BAR = 1 / 1.45, 1 / 1.2, 1 / 1.7


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


SHAPES = (
    Shape(4, 16, 4096, 64),
    Shape(4, 16, 4096, 128),
    Shape(1, 16, 16384, 64),
    Shape(1, 16, 16384, 128),
    Shape(1, 8, 65536, 128),
)
GROWING = tuple(Shape(1, 16, 1 << n, 128) for n in range(10, 17))  # the README's plot


def cases(device: torch.device, *, quick: bool = False) -> list[Case]:
    """List the cases; ``quick`` leaves out the long inputs."""
    listed: list[Case] = []
    for shape in SHAPES[:2] if quick else SHAPES:
        for causal in (False, True):
            bar = 1 / 1.6 if shape.d == 128 else 1 / 1.8
            listed.append(_case("look", "blind", shape, causal, device, bar))
    if not quick:
        listed += [_case("look", "blind and eager", shape, True, device, None) for shape in GROWING]
    long = SHAPES[1] if quick else SHAPES[3]
    for causal in (False, True):
        listed.append(_case("look", "eager", long, causal, device, _EAGER_BARS[causal]))
        listed.append(_case("rows only", "blind", long, causal, device, _ROWS_BAR))
        listed.append(_case("top 8", "everything", long, causal, device, _TOP_BAR))
        listed.append(_case("training received", "blind", long, causal, device, _TRAIN_BAR))
    return listed


def _case(
    what: str, peer: str, shape: Shape, causal: bool, device: torch.device, bar: float | None
) -> TimedCase:
    name = f"{device} {what} beside {peer} {shape}{' causal' * causal}"
    return TimedCase(
        name=name, device=device, bar=bar, setup=partial(compare, what, peer, shape, causal, device)
    )


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
    for first in range(0, t, _AT_ONCE):
        queries = torch.arange(first, min(first + _AT_ONCE, t), device=q.device)
        scores = (q[:, :, queries] @ k.mT) * q.size(-1) ** -0.5
        if causal:
            scores.masked_fill_(keys > queries[:, None], -torch.inf)
        weights = scores.softmax(-1)
        received += weights.sum(2)
        entropy[:, :, queries] = torch.special.entr(weights).sum(-1)
        peak[:, :, queries] = weights.amax(-1)
        picture.index_add_(2, queries * cells // t, weights.unflatten(-1, (cells, -1)).sum(-1))
    return received, entropy, peak, picture * cells**2 / (t * s)


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
