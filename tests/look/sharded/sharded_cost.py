# ruff: noqa: T201
"""The cost model of sharded attention: its messages counted in real runs, its times predicted for many GPUs.

    python tests/look/sharded/sharded_cost.py  # count messages on 2 and 4, predict, draw
    python tests/look/sharded/sharded_cost.py --no-count  # predict and draw alone

A message is what a rank hands to torch.distributed. Counting patches the functions that Sightline calls, so
it sees every one of them, and compares with the formulas below: number for number, byte for byte.
"""

import argparse
import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from sharded_ranks import on_ranks
from sharded_watch_cases import LAYERS, make, tensor_parallel_model
from sharded_watch_tokens import context_parallel_on_cpu

import sightline as sl
from sightline.look.sharded.collectives import NAMES

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").is_file())
Messages = dict[str, tuple[int, int]]  # kind -> how many, how many bytes in all


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What costs depend on: the letters of a shape, the ranks P, and the bytes of an entry of k."""

    B: int
    H: int
    Hkv: int
    T: int
    S: int
    D: int
    P: int
    layers: int = 1
    width: int = 4
    cells: int = 0

    @property
    def keys_of_a_rank(self) -> int:
        """The bytes of k that a rank has."""
        return self.B * self.Hkv * self.S // self.P * self.D * self.width


# The formulas: what one rank hands over


def ring_pass(x: Sizes) -> Messages:
    """Keys go round once for each layer: P - 1 blocks sent, one after the other."""
    n = (x.P - 1) * x.layers
    return {"send": (n, n * x.keys_of_a_rank)}


def reductions(x: Sizes) -> Messages:
    """What keys received, (B, H, S) in float32, and the bins of the maps; once for all layers."""
    found = {"reduce_scatter": (1, 4 * x.B * x.H * x.S * x.layers)}
    return found | ({"all_reduce": (1, 4 * x.B * x.H * x.cells * x.layers)} if x.cells else {})


def watched(x: Sizes) -> Messages:
    """``sl.watch`` of a context-parallel model: entropy, peak, lse and top cost no message of their own."""
    return ring_pass(x) | reductions(x)


def looked(x: Sizes) -> Messages:
    """``sl.look(..., group=)``: lengths, then k and v for output and lse, then k for the statistics."""
    n, nbytes = ring_pass(x)["send"]
    return {"all_gather": (1, 16), "send": (3 * n, 3 * nbytes)} | reductions(x)


def gathered_heads(x: Sizes, *, top: int) -> Messages:
    """``seen.gather()`` under tensor parallelism: each statistic once for all layers, one message of shapes.

    Of each layer lse, entropy and peak have 4 bytes a query, peak_at 8, top 4 and top_at 8 each; received has
    4 bytes a key, the map 4 a cell.
    """
    heads = x.B * x.H // x.P * x.layers
    per_head = x.T * (3 * 4 + 8) + 4 * x.S + 4 * x.cells + 12 * top * x.T
    return {"all_gather_object": (1, 0), "all_gather": (6 + 2 * bool(top), heads * per_head)}


# Counting


@contextlib.contextmanager
def counting() -> Iterator[Messages]:
    """Count the messages of this rank."""
    counts: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    found: Messages = {}

    def note(kind: str, *tensors: torch.Tensor) -> None:
        counts[kind] += 1
        nbytes[kind] += sum(x.nbytes for x in tensors)

    def patched(kind: str, name: str, given: Callable[..., list[torch.Tensor]]) -> Any:
        function = getattr(dist, name)

        def call(*args: Any, **options: Any) -> Any:
            note(kind, *given(*args, **options))
            return function(*args, **options)

        return mock.patch.object(dist, name, call)

    def sends(operations: list[Any]) -> Any:
        for one in operations:
            if one.op is dist.isend:
                note("send", one.tensor)
        return exchange(operations)

    exchange = dist.batch_isend_irecv
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(dist, "batch_isend_irecv", sends))
        given = {"all_reduce": lambda x, *_, **__: [x], "all_gather_object": lambda *_, **__: []}
        names = {kind: (kind,) for kind in given} | NAMES
        for kind, name in ((kind, name) for kind, some in names.items() for name in some):
            if hasattr(dist, name):
                sent = given.get(kind, lambda _, x, *__, **___: [x])
                stack.enter_context(patched(kind, name, sent))
        yield found
    found.update({kind: (counts[kind], nbytes[kind]) for kind in counts})


def count(mesh: Any) -> dict[str, tuple[Messages, Messages]]:
    """What is counted on this rank beside what the formulas say."""
    world, rank = mesh.size(), mesh.get_local_rank()
    look, cells, found = sl.Look(map=(5, 3), top=3), 15, {}
    base = Sizes(B=3, H=8, Hkv=4, T=24, S=24, D=5, P=world, cells=cells)
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, h, 24, 5).chunk(world, 2)[rank].contiguous() for h in (8, 4, 4))
    with counting() as messages:
        sight = sl.look(q, k, v, sl.masks.causal(), measure=look, group=dist.group.WORLD)
    found["sl.look(..., group=)"] = messages, looked(base)
    for name, ask, extra in (
        ("sight.rows(2)", lambda: sight.rows([1, 7]), {"all_reduce": (1, 4 * 3 * 8 * 2 * 24)}),
        ("sight.top(5)", lambda: sight.top(5), {}),
        ("sight.mass(2 groups)", lambda: sight.mass([[0], [1]]), {}),
        ("sight.offsets(9)", lambda: sight.offsets(9), {"all_reduce": (1, 4 * 3 * 8 * 9)}),
        ("sight.received_from", sight.received_from, {"reduce_scatter": (1, 4 * 3 * 8 * 24)}),
    ):
        with counting() as messages:
            ask()
        found[name] = messages, ring_pass(base) | extra
    model, x = make(t=24)
    sizes = Sizes(B=x.size(0), H=8, Hkv=8, T=24, S=24, D=4, P=world, layers=LAYERS, cells=cells)
    with (
        context_parallel_on_cpu(mesh, x, balanced=True) as local,
        counting() as messages,
        torch.no_grad(),
        sl.watch(model, measure=look),
    ):
        model(local)
    found["sl.watch, context_parallel"] = messages, watched(sizes)
    model = tensor_parallel_model(mesh, use_local=True)
    _, x = make(t=24)
    with torch.no_grad(), counting() as messages, sl.watch(model, measure=look) as seen:
        model(x)
    found["sl.watch, tensor parallel"] = messages, {}
    with counting() as messages:
        seen.gather()
    found["seen.gather(), tensor parallel"] = messages, gathered_heads(sizes, top=3)
    return found


def check(world: int) -> list[tuple[str, Messages, Messages]]:
    """What ranks count beside the formulas; all ranks must agree with them."""
    rows = []
    for rank, found in enumerate(on_ranks(world, count)):
        for name, (messages, expected) in found.items():
            if messages != expected:
                raise SystemExit(f"{name} on rank {rank} of {world}: counted {messages}, expected {expected}")
            if rank == 0:
                rows.append((name, messages, expected))
    return rows


# Prediction


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What is assumed of a cluster, in bytes a second and for each GPU, one way."""

    inside: float = 450e9  # NVLink 4: 900 GB/s both ways
    between: float = 50e9  # one 400 Gb/s card a GPU
    gpus: int = 8  # of a machine
    latency: float = 20e-6  # of a message

    def speed(self, ranks: int) -> float:
        """Of the slowest link in a ring of so many ranks."""
        return self.inside if ranks <= self.gpus else self.between


def wire_bytes(messages: Messages, ranks: int) -> dict[str, float]:
    """What a rank sends for these messages, by the usual ring algorithms."""
    factors = {"send": 1.0, "reduce_scatter": (ranks - 1) / ranks, "all_reduce": 2 * (ranks - 1) / ranks,
               "all_gather": ranks - 1.0}  # fmt: skip
    return {kind: nbytes * factors.get(kind, 0.0) for kind, (_, nbytes) in messages.items()}


def measured_seconds() -> tuple[float, float]:
    """Of one head of causal attention at 65,536 tokens on one H200: blind, and the second pass beyond it."""
    report = json.loads((ROOT / "benchmarks" / "results" / "look-h200.json").read_text())
    case = next(x for x in report["cases"] if "beside blind B=1 H=8 T=65536 D=128 causal" in x["case"])
    ms = {one["contestant"]: one["milliseconds"] for one in case["results"]}
    return ms["blind"] / 8e3, (ms["sightline"] - ms["blind"]) / 8e3


def predict(x: Sizes, machine: Machine) -> dict[str, float]:
    """Seconds a layer on each of P GPUs: causal attention blind, the second pass, and the messages."""
    blind, second = measured_seconds()
    pairs = x.H * x.B * (x.T / 65536) * (x.S / 65536) / x.P
    sent = wire_bytes(watched(x), x.P)
    counts = {kind: n for kind, (n, _) in watched(x).items()}
    seconds = {
        kind: nbytes / machine.speed(x.P) + counts[kind] * machine.latency for kind, nbytes in sent.items()
    }
    return {"blind": blind * pairs, "second pass": second * pairs} | seconds


MILLION = Sizes(B=1, H=32, Hkv=8, T=1 << 20, S=1 << 20, D=128, P=8, width=2, cells=1024 * 1024)


def prediction_table() -> str:
    """A line for each number of GPUs; the ring overlaps with the second pass, the reductions do not."""
    head = ("GPUs", "attention, blind", "second pass", "k round the ring", "received", "map")
    lines = [f"| {' | '.join(head)} | messages beside blind | what is not hidden |", "|---" * 8 + "|"]
    for ranks in (8, 64):
        x = predict(replace(MILLION, P=ranks), Machine())
        reduced = x["reduce_scatter"] + x["all_reduce"]
        shown = " | ".join(f"{1e3 * x[name]:,.1f} ms" for name in ("blind", "second pass", *watched(MILLION)))
        late = max(0.0, x["send"] - x["second pass"]) + reduced
        lines.append(
            f"| {ranks} | {shown} | {(x['send'] + reduced) / x['blind']:.1%} | {late / x['blind']:.2%} |"
        )
    return "\n".join(lines)


def draw(path: Path) -> None:
    """Seconds a layer over the number of GPUs: what computes, and what travels."""
    from matplotlib.figure import Figure

    from sightline.show.style import style

    ranks = [2, 4, 8, 16, 32, 64, 128, 256]
    found = [predict(replace(MILLION, P=n), Machine()) for n in ranks]
    lines = {
        "blind": ("attention, blind", "#6d6d78", "-"),
        "second pass": ("second pass, by the kernels", "#2a6fb0", "-"),
        "send": ("keys round the ring", "#b5367a", "-"),
        "all_reduce": ("map of 1024 x 1024, all-reduce", "#c98a2b", "--"),
        "reduce_scatter": ("received, reduce-scatter", "#3c8d5a", "--"),
    }
    with style():
        figure = Figure(figsize=(7.6, 4.4), dpi=150, layout="constrained")
        axes = figure.add_subplot()
        for key, (name, colour, dashes) in lines.items():
            axes.plot(
                ranks, [1e3 * x[key] for x in found], dashes, color=colour, label=name, marker="o", ms=3
            )
        axes.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="milliseconds a layer, each GPU")
        axes.set_xticks(ranks, [str(n) for n in ranks])
        axes.minorticks_off()
        axes.axvline(11.3, color="#bbbbc4", lw=0.8)
        axes.text(11.8, axes.get_ylim()[0] * 1.3, "more than one machine", fontsize=8, color="#6d6d78")
        axes.legend(frameon=False, fontsize=8)
        axes.set_title(
            "1,048,576 tokens, causal, 32 heads of 128, 8 of keys, bfloat16: predicted", fontsize=10
        )
    figure.savefig(path)


def main() -> None:
    """Count, predict, draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--no-count", action="store_true")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "pictures")
    options = parser.parse_args()
    for world in [] if options.no_count else options.ranks:
        print(f"messages of one of {world} ranks, counted; the formulas say the same")
        for name, messages, _ in check(world):
            shown = ", ".join(f"{n} {kind} ({size:,} bytes)" for kind, (n, size) in messages.items())
            print(f"  {name:32} {shown or 'none'}")
    print(prediction_table())
    draw(options.folder / "many_machines_cost.png")


if __name__ == "__main__":
    main()
