"""Attention measured, beside attention alone and beside eager attention with the same statistics.

Everything is received, entropy, peak and a 64 x 64 map. Beside ``blind``, the kernel alone, a ratio says what
the statistics cost.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

import sightline as sl
from benchmarks import attention, look_questions
from benchmarks.harness import OURS, Case, Contest, draw
from benchmarks.look_questions import dtype_on, exact_rows
from benchmarks.memory import memory_case

Shape = tuple[int, int, int, int]  # B, H, T, D

# On a GPU: shapes, and the most that everything may take, in times of the kernel alone.
EVERYTHING: dict[Shape, float | None] = {
    (4, 16, 4096, 64): 1.85,
    (4, 16, 4096, 128): 1.75,
    (1, 16, 16384, 128): 1.6,
    (1, 4, 65536, 128): 1.55,
    (2, 8, 1024, 128): 4.0,
    (2, 8, 2048, 128): 3.0,
    (2, 8, 5003, 128): 2.0,  # cells of uneven size
}
LONG: Shape = (1, 16, 16384, 128)
GROWING = tuple((1, 16, 1 << n, 128) for n in range(10, 17))  # what docs/pictures/look_over_length.png shows
ON_CPU: tuple[Shape, ...] = ((1, 8, 1024, 64), (1, 8, 4096, 64))
CELLS = 64
LOOKS = {
    "look": sl.Look(map=CELLS),
    "rows only": sl.Look(received=False),
    "top 8": sl.Look(received=False, entropy=False, peak=False, top=8),
}


def cases(device: torch.device, quick: bool) -> list[Case]:
    """List the cases; ``quick`` leaves out long inputs."""
    found: list[Case] = []
    if device.type == "cuda":
        for causal in (False, True):
            add = partial(_beside, found, device, causal=causal)
            for shape, most in EVERYTHING.items():
                if not quick or shape[2] <= 5003:
                    add("look", shape, "blind", most=most)
            long = (4, 16, 4096, 128) if quick else LONG
            add("rows only", long, "blind", most=1.5)
            add("top 8", long, "everything", most=1.2)
            add("training received", long, "blind", most=1.7)
            add("look", long, "eager", most=0.1 if causal else 0.29)
        for shape in () if quick else GROWING:
            _beside(found, device, "look", shape, "blind", "eager", causal=True)
        uses = {"kind": "multihead", "training": False, "weights": True}
        for length in attention.GPU.lengths[:2] if quick else attention.GPU.lengths:
            setup = partial(attention.module, device, attention.GPU, length, **uses)
            found.append(Case(name=attention.name_of(length, **uses), setup=setup, most=1.0))
    else:
        for shape, causal in product(ON_CPU[: 1 if quick else None], (False, True)):
            _beside(found, device, "look", shape, "blind", causal=causal, most=3.0)
            _beside(found, device, "look", shape, "eager", causal=causal, most=0.5)
    found += look_questions.cases(device, quick)
    if device.type == "cpu":
        for length in (32768,) if quick else (8192, 32768):
            note = f"the matrix in float32 takes {4 * length**2 / 1e6:.0f} MB"
            words = f"memory of a look T={length} D=64"
            found.append(memory_case(words, "benchmarks.look:long_look", 300_000_000, note, length=length))
    return found


def _beside(
    found: list[Case],
    device: torch.device,
    what: str,
    shape: Shape,
    *peers: str,
    causal: bool,
    most: float | None = None,
) -> None:
    b, h, t, d = shape
    name = f"{what} beside {' and '.join(peers)} B={b} H={h} T={t} D={d}{' causal' * causal}"
    setup = partial(compare, device, what, shape, peers, causal=causal)
    found.append(Case(name=name, setup=setup, peer=peers[0], most=most))


def compare(device: torch.device, what: str, shape: Shape, peers: Sequence[str], *, causal: bool) -> Contest:
    """Return a look beside its peers; its first head is held against float64."""
    q, k, v = (draw(i, *shape, device=device, dtype=dtype_on(device)) for i in range(3))
    mask = sl.masks.causal() if causal else None
    if what == "training received":
        return _training(q, k, v, mask)
    cells = min(CELLS, shape[2])

    def measured(look: sl.Look) -> tuple[Tensor, ...]:
        found = sl.look(q, k, v, mask, measure=look, keep=False).statistics
        return tuple(found[n] for n in ("output", "received", "entropy", "peak", "map", "top") if n in found)

    known: dict[str, Callable[[], tuple[Tensor, ...]]] = {
        "blind": lambda: (sl.attention(q, k, v, mask),),
        "eager": partial(eager, q, k, v, cells, causal=causal),
        "everything": partial(measured, replace(LOOKS["look"], map=cells)),
    }
    runs = {OURS: partial(measured, replace(LOOKS[what], map=cells) if what == "look" else LOOKS[what])}
    runs |= {name: known[name] for name in peers}
    if what != "look":
        return Contest(runs=runs)
    return Contest(
        runs=runs,
        exact=partial(exact_statistics, q, k, cells, causal=causal),
        part=first_head,
        unchecked=("blind",),
        slack=1e-4,
    )


def first_head(results: Sequence[Tensor]) -> list[Tensor]:
    """Return the statistics of the first head of the first item; the output comes before them."""
    return [x[:1, :1] for x in results[1:]]


def eager(q: Tensor, k: Tensor, v: Tensor, cells: int, *, causal: bool) -> tuple[Tensor, ...]:
    """Store the matrix in the dtype of the inputs, as models do, and take the statistics from it."""
    scores = (q @ k.mT) * q.size(-1) ** -0.5
    if causal:
        scores.masked_fill_(
            torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1), -torch.inf
        )
    exact = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.softmax(-1, dtype=exact).to(q.dtype)
    picture = weights.unflatten(-1, (cells, -1)).mean(-1).unflatten(-2, (cells, -1)).mean(-2)
    return weights @ v, weights.sum(-2), torch.special.entr(weights).sum(-1), weights.amax(-1), picture


def exact_statistics(q: Tensor, k: Tensor, cells: int, *, causal: bool) -> tuple[Tensor, ...]:
    """Return received, entropy, peak and map of the first head in float64, some queries at a time."""
    t = q.size(2)
    received, picture = q.new_zeros(1, 1, t, dtype=torch.float64), 0.0
    entropy, peak = torch.empty_like(received), torch.empty_like(received)
    # (T, cells): one where a position falls into a cell; cell i begins at floor(i T / cells)
    position = torch.arange(t, device=q.device)
    members = F.one_hot(((position + 1) * cells - 1) // t, cells).double()
    for queries, weights in exact_rows(q, k, causal=causal):
        received += weights.sum(2)
        entropy[:, :, queries] = torch.special.entr(weights).sum(-1)
        peak[:, :, queries] = weights.amax(-1)
        picture = picture + members[queries].mT @ (weights @ members)
    sizes = members.sum(0)
    return received, entropy, peak, picture / (sizes[:, None] * sizes)


def _training(q: Tensor, k: Tensor, v: Tensor, mask: sl.Mask | None) -> Contest:
    """A step of attention alone, forward and backward: with a loss on received, and without."""
    leaves, upstream = [x.requires_grad_() for x in (q, k, v)], torch.randn_like(v)

    def with_received() -> tuple[Tensor, ...]:
        sight = sl.look(q, k, v, mask, measure=sl.Look(entropy=False, peak=False), keep=False)
        loss = (sight.output * upstream).sum() + (sight.received - 1).square().mean()
        return torch.autograd.grad(loss, leaves)

    def blind() -> tuple[Tensor, ...]:
        return torch.autograd.grad((sl.attention(q, k, v, mask) * upstream).sum(), leaves)

    return Contest(runs={OURS: with_received, "blind": blind}, grad=True)


def long_look(length: int) -> Callable[[], object]:
    """Return a look at one long head; what torch sets up at first use is not counted."""

    def ready(t: int) -> Callable[[], object]:
        q, k, v = (draw(i, 1, 1, t, 64, device=torch.device("cpu")) for i in range(3))
        return lambda: sl.look(q, k, v, measure=sl.Look(map=CELLS), keep=False)

    ready(CELLS)()
    return ready(length)
