"""The messages of sharded attention, counted in a run, next to what the formulas say.

A message is what a rank hands to torch.distributed. Counting patches the functions that Sightline calls, so
it sees every one of them, and compares with the formulas below: number for number, byte for byte.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from sharded_watch_cases import LAYERS, make, tensor_parallel_model
from sharded_watch_tokens import context_parallel_on_cpu

import sightline as sl
from sightline.look.sharded.collectives import NAMES

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
