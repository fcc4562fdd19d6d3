"""What only a GPU can say, in some minutes: ``python -m benchmarks.gpu_check``.

1. Parity: every kernel against the dense matrix in float64, over masks, dtypes, head widths, uneven lengths.
2. Streams and graphs: the same answers from several streams, from replayed launches, and in a CUDA graph.
3. Times of ``look``, ``watch`` and ``attention``, each beside its peers and the most it may take.

Send the whole output with a report. The exit code is 1 if a check fails; times alone never fail.
"""

import sys
import time
from collections.abc import Callable, Iterator
from itertools import product

import torch
from torch import Tensor

import sightline as sl
from benchmarks import attention, look, watch
from benchmarks.harness import draw, machine, measure, relative_error, table

Shape = tuple[int, int, int, int, int, int]  # B, H, heads of keys, T, S, D
SHAPES: tuple[Shape, ...] = (
    (2, 6, 2, 521, 523, 64),
    (1, 2, 2, 1031, 1031, 128),
    (2, 2, 2, 131, 67, 40),
    (1, 2, 1, 257, 263, 192),
    (1, 2, 1, 257, 263, 32),
)
MASKS: dict[str, Callable[[int, int, torch.device], sl.Mask | None]] = {
    "none": lambda *_: None,
    "causal": lambda *_: sl.masks.causal(),
    "window": lambda *_: sl.masks.window(37, 11),
    "padding": lambda b, s, d: sl.masks.padding(torch.tensor([s, s - 13][:b], device=d)),
    "bias": lambda _, s, d: sl.masks.bias(draw(9, 1, 1, 1, s, device=d).bfloat16().float()),
}
NEAR = {torch.float32: 1e-4, torch.bfloat16: 1e-3, torch.float16: 1e-3}
TIMED = {look: "look beside blind*causal", watch: "watch", attention: "attention forward"}


def parity(device: torch.device, shapes: tuple[Shape, ...] = SHAPES) -> Iterator[tuple[str, float, float]]:
    """Yield what was asked, its error against float64 and how large that may be."""
    for (name, mask_of), dtype, shape in product(MASKS.items(), NEAR, shapes):
        b, h, n_kv, t, s, d = shape
        if name in {"causal", "window"} and t > s:
            continue
        mask = mask_of(b, s, device)
        sizes = ((b, h, t, d), (b, n_kv, s, d), (b, n_kv, s, d))
        q, k, v = (draw(i, *x, device=device, dtype=dtype).requires_grad_() for i, x in enumerate(sizes))
        weights = dense(q, k, mask)
        for what, error in _errors(q, k, v, mask, weights):
            yield f"{what} {str(dtype).removeprefix('torch.')} {name} {shape}", error, NEAR[dtype]


def dense(q: Tensor, k: Tensor, mask: sl.Mask | None) -> Tensor:
    """Return the matrix of weights in float64, differentiable in q and k."""
    h, t, s = q.size(1), q.size(2), k.size(2)
    scores = q.double() @ k.double().repeat_interleave(h // k.size(1), 1).mT * q.size(-1) ** -0.5
    if mask is None:
        return scores.softmax(-1)
    if mask.added:
        scores = scores + mask.added[0].double()
        return scores.softmax(-1)
    allowed = mask.dense(t, s, device=q.device)
    allowed = allowed[:, None] if allowed.dim() == 3 else allowed
    return scores.masked_fill(~allowed, -torch.inf).softmax(-1)


def entropy(w: Tensor) -> Tensor:
    """Return the entropy of each query's weights; its gradient is finite where a weight is 0."""
    return -(w * w.clamp_min(torch.finfo(w.dtype).tiny).log()).sum(-1)


def _errors(q: Tensor, k: Tensor, v: Tensor, mask: sl.Mask | None, w: Tensor) -> Iterator[tuple[str, float]]:
    t, s = w.shape[-2:]
    ids, first = torch.arange(s, device=q.device) % 5, t // 3
    n, at = min(29, t, s), max(0, s - t)  # distances, and where the first query is
    everything = sl.Look(map=16, top=3)
    sight = sl.look(q, k, v, mask, measure=everything)
    fixed = w.detach()
    members = torch.nn.functional.one_hot(ids, 5).double()
    rows, columns = _cells(t, 16, fixed), _cells(s, 16, fixed)
    asked = {
        "output": (sight.output, fixed @ v.double().repeat_interleave(q.size(1) // k.size(1), 1)),
        "received": (sight.received, fixed.sum(-2)),
        "entropy": (sight.entropy, entropy(fixed)),
        "peak": (sight.peak, fixed.amax(-1)),
        "map": (sight.map(16), rows.mT @ fixed @ columns),
        "top": (sight.top(3)[0], fixed.topk(3).values),
        "rows": (sight.rows([0, t - 1]), fixed[:, :, [0, t - 1]]),
        "columns": (sight.columns([0, s // 2]), fixed[..., [0, s // 2]]),
        "mass": (sight.mass(ids), fixed @ members),
        "received from": (sight.received_from((first, t)), fixed[:, :, first:].sum(-2)),
        "received from, max": (sight.received_from((first, t), "max"), fixed[:, :, first:].amax(-2)),
        "offsets": (sight.offsets(n, first=at), _offsets(fixed, n, at)),
    }
    for what, (got, exact) in asked.items():
        loose = 10 if what == "output" else 1  # it has no more digits than its dtype
        yield what, relative_error([got], [exact]) / loose
    up = draw(5, *sight.received.shape, device=q.device), draw(6, *sight.entropy.shape, device=q.device)
    loss = (sight.received * up[0]).sum() + (sight.entropy * up[1]).sum()
    exact = (w.sum(-2) * up[0].double()).sum() + (entropy(w) * up[1].double()).sum()
    ours = torch.autograd.grad(loss, (q, k), retain_graph=True)
    theirs = torch.autograd.grad(exact, (q, k), retain_graph=True)
    yield "gradient", relative_error(ours, [x.double() for x in theirs]) / 10


def _cells(n: int, cells: int, like: Tensor) -> Tensor:
    """(n, cells): the share of a cell that a position has; cell i begins at floor(i n / cells)."""
    position = torch.arange(n, device=like.device)
    members = torch.nn.functional.one_hot(((position + 1) * cells - 1) // n, cells).to(like)
    return members / members.sum(0)


def _offsets(w: Tensor, n: int, first: int) -> Tensor:
    """The mass at each distance of a key before its query."""
    return torch.stack([w.diagonal(first - i, -2, -1).sum(-1) for i in range(n)], -1)


def streams_and_graphs(device: torch.device) -> Iterator[tuple[str, float, float]]:
    """Yield the same for streams that run at once, launches that are replayed, and a CUDA graph."""
    inputs = [[draw(3 * n + i, 2, 4, 1021, 64, device=device) for i in range(3)] for n in range(4)]
    measure = sl.Look(map=16)
    exact = [[dense(q, k, sl.masks.causal()).sum(-2)] for q, k, _ in inputs]

    def received(n: int) -> list[Tensor]:
        return [sl.look(*inputs[n], sl.masks.causal(), measure=measure).received]

    for n in range(4):  # of one shape: all but the first replay the launches of the first
        yield f"launch {n}", relative_error(received(n), exact[n]), 1e-4
    side = [torch.cuda.Stream(device) for _ in range(4)]
    found = []
    for n, stream in enumerate(side):
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            found.append(received(n))
    torch.cuda.synchronize(device)
    for n in range(4):
        yield f"stream {n}", relative_error(found[n], exact[n]), 1e-4
    q, k, v = (x.clone() for x in inputs[0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = sl.attention(q, k, v, sl.masks.causal())
    for mine, new in zip((q, k, v), inputs[1], strict=True):
        mine.copy_(new)
    graph.replay()
    right = dense(q, k, sl.masks.causal()) @ v.double()
    yield "attention in a graph", relative_error([out], [right]), 1e-3


def times(device: torch.device, seconds: float = 0.1) -> str:
    """Return a table of look, watch and attention, each beside its peers."""
    from fnmatch import fnmatch

    outcomes = []
    for module, pattern in TIMED.items():
        for case in module.cases(device, True):
            if fnmatch(case.name, f"*{pattern}*"):
                outcomes.append(measure(case, device, seconds))
                sys.stderr.write(".")
    return table({"machine": machine([device]), "cases": outcomes})


def main() -> int:
    """Check, time, print; returns the exit code."""
    if not torch.cuda.is_available():
        sys.stderr.write(f"torch {torch.__version__} sees no GPU, and this checks one\n")
        return 2
    device, start = torch.device("cuda"), time.perf_counter()
    done, wrong = [], []
    for checks in (parity(device), streams_and_graphs(device)):
        try:
            for what, error, most in checks:
                done.append(what)
                if not error <= most:  # NaN is wrong as well
                    wrong.append(f"{what}: error {error:.1e}, at most {most:.0e}")
        except Exception as problem:  # noqa: BLE001 - a kernel's compiler raises what it likes
            wrong.append(f"after {done[-1:]}: {type(problem).__name__}: {problem}")
    sys.stdout.write("".join(f"WRONG {line}\n" for line in wrong))
    sys.stdout.write(f"{len(done)} checks, {len(wrong)} wrong, {time.perf_counter() - start:.0f} s\n\n")
    sys.stdout.write(times(device))
    sys.stdout.write(f"\n{time.perf_counter() - start:.0f} s in all\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
