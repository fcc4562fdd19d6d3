"""What ``sharded_watch.py`` tries on each rank with sequences that are spread over processes."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sharded_watch_cases import (
    CPU_KERNEL,
    LOOK,
    Row,
    compare,
    compare_questions,
    largest,
    make,
    tensor_parallel_model,
    watch_alone,
    watched,
)
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel

import sightline as sl


@contextlib.contextmanager
def ring_on_cpu() -> Iterator[None]:
    """Let torch's own ring of ``context_parallel`` run on the CPU's kernel; it knows three of CUDA's."""
    from torch.distributed.tensor.experimental._context_parallel import _attention as ring

    def handler(_op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names = ("query", "key", "value", "dropout_p", "is_causal")
        given = dict(zip(names, args, strict=False)) | kwargs
        q = given["query"]
        out, lse = ring._templated_ring_attention(
            q.device_mesh.get_group(), 2, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu,
            query=q.to_local(), key=given["key"].to_local(), value=given["value"].to_local(),
            is_causal=given.get("is_causal", False), scale=given.get("scale"),
        )  # fmt: skip
        return tuple(DTensor.from_local(x, q.device_mesh, q.placements, run_check=False) for x in (out, lse))

    before = dict(ring.custom_ops)
    ring.custom_ops[CPU_KERNEL] = handler
    try:
        yield
    finally:
        ring.custom_ops.clear()
        ring.custom_ops.update(before)


@contextlib.contextmanager
def context_parallel_on_cpu(mesh: DeviceMesh, x: Tensor, *, balanced: bool) -> Iterator[Tensor]:
    """Torch's ``context_parallel`` over this input, (B, T, E): what this rank has of it."""
    from torch.distributed.tensor.experimental._context_parallel import _attention as ring

    before, ring._cp_options.enable_load_balance = ring._cp_options.enable_load_balance, balanced
    try:
        local = x.clone()
        with ring_on_cpu(), torch.no_grad(), context_parallel(mesh, buffers=[local], buffer_seq_dims=[1]):
            yield local
    finally:
        ring._cp_options.enable_load_balance = before


def torch_ring(mesh: DeviceMesh) -> Iterator[Row]:
    """Torch's ``context_parallel``: causal with its load balancer, causal without, and full."""
    t = 24
    for causal, balanced in ((True, True), (True, False), (False, False)):
        case = f"context_parallel, {'causal' if causal else 'full'}{', balanced' if balanced else ''}"
        model, x = make(causal=causal, t=t)
        with context_parallel_on_cpu(mesh, x, balanced=balanced) as local:
            seen, rows = watched(model, local, case, keep=True)
        yield from rows
        truth = watch_alone(causal=causal, t=t, keep=True)
        whole = seen.gather()
        for name in truth.names():
            sight = seen[name]
            at, keys = (axis.positions() for axis in (sight.shard.queries, sight.shard.keys))
            yield from compare(case, whole[name], truth[name])
            yield from compare_questions(case, sight, truth[name], _part_of_sequence(at, keys))


def torch_ring_and_tp(mesh: DeviceMesh) -> Iterator[Row]:
    """``context_parallel`` over one dimension of a mesh and tensor parallelism over the other."""
    if mesh.size() < 4:
        return
    case = "context_parallel and TP, causal, balanced"
    grid = init_device_mesh("cpu", (2, mesh.size() // 2), mesh_dim_names=("tokens", "heads"))
    model, (_, x) = tensor_parallel_model(grid["heads"], use_local=True), make(t=24)
    with context_parallel_on_cpu(grid["tokens"], x, balanced=True) as local:
        seen, rows = watched(model, local, case)
    yield from rows
    truth, whole = watch_alone(t=24), seen.gather()
    for name in truth.names():
        yield from compare(case, whole[name], truth[name])


def _part_of_sequence(queries: Tensor, keys: Tensor) -> Callable[[str, Tensor], Tensor]:
    """What a rank should answer of the whole: its queries, its keys, or all."""

    def part(name: str, answer: Tensor) -> Tensor:
        if name in {"top", "top_at", "mass", "columns"}:
            return answer[..., queries, :]
        return answer[..., keys] if name.startswith("received_from") else answer

    return part


def masks(t: int, s: int, own: Tensor, dtype: torch.dtype) -> dict[str, tuple[Any, Any]]:
    """Masks of the whole, and the same as a rank is given it, with rows for its own queries."""
    torch.manual_seed(11)
    lengths = torch.tensor([s, s - 6, 1])
    bias = torch.randn(1, 6, t, s, dtype=dtype)
    allowed = torch.rand(3, 1, t, s) > 0.3
    same = {
        "full": None,
        "causal": sl.masks.causal(),
        "padding": sl.masks.padding(lengths),
        "causal, padding": sl.masks.causal() & sl.masks.padding(lengths),
        "window": sl.masks.window(4, 2),
    }
    return {name: (mask, mask) for name, mask in same.items()} | {
        "bias": (sl.masks.bias(bias), sl.masks.bias(bias[..., own, :])),
        "tensor": (allowed, allowed[..., own, :]),
    }


def ring(mesh: DeviceMesh, dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64)) -> Iterator[Row]:
    """``sl.look(..., group=)``: every mask, shards of any length, float32 and float64, S other than T."""
    rank, world = mesh.get_local_rank(), mesh.size()
    for dtype in dtypes:
        for t, s, how in (
            (24, 24, "even"),
            (29, 29, "uneven"),
            (23, 31, "uneven"),
            (29, 29, "one rank empty"),
        ):
            torch.manual_seed(5)
            q, k, v = (torch.randn(3, h, n, 7, dtype=dtype) for h, n in ((6, t), (3, s), (3, s)))
            rows, columns = (_cut(n, world, how)[rank] for n in (t, s))
            for name, (mask, own) in masks(t, s, rows, dtype).items():
                case = f"ring, {name}, {how}{', float64' if dtype == torch.float64 else ''}"
                shards = q[:, :, rows], k[:, :, columns], v[:, :, columns]
                sight = sl.look(*shards, own, measure=LOOK, group=dist.group.WORLD)
                truth = sl.look(q, k, v, mask, measure=LOOK)
                yield from compare(case, sight.gather(), truth)
                part, first = _part_of_sequence(rows, columns), None if t == s else s - t
                yield from compare_questions(case, sight, truth, part, first=first)


def large_scores(mesh: DeviceMesh) -> Iterator[Row]:
    """Scores of some hundreds, where an lse in float32 would have too few digits."""
    torch.manual_seed(17)
    q, k, v = (torch.randn(1, 2, 29, 7) for _ in range(3))
    q = q * 120
    own = _cut(29, mesh.size(), "uneven")[mesh.get_local_rank()]
    sight = sl.look(
        *(x[:, :, own] for x in (q, k, v)), sl.masks.causal(), measure=LOOK, group=dist.group.WORLD
    )
    truth = sl.look(q, k, v, sl.masks.causal(), measure=LOOK)
    sums = sight.mass([slice(0, 29)])  # both rounds round a score alike, so a row of weights sums to one
    yield Row("ring, scores of hundreds", "rows sum to one", largest(sums, torch.ones_like(sums)))
    yield from compare("ring, scores of hundreds", sight.gather(), truth)


def _cut(n: int, world: int, how: str) -> list[Tensor]:
    """The positions of each rank: as many each, or 1, 4, 7, ... and the rest, or none on the first."""
    if how == "even":
        return list(torch.arange(n).tensor_split(world))
    lengths = [1 + 3 * i for i in range(world - 1)] if how == "uneven" else [0, *[5] * (world - 2)]
    return list(torch.arange(n).split([*lengths, n - sum(lengths)]))


def dtensors(mesh: DeviceMesh) -> Iterator[Row]:
    """``sl.look`` of DTensors: by tokens, heads and items, and by heads and tokens at once."""
    torch.manual_seed(7)
    q, k, v = (torch.randn(5, h, 29, 7) for h in (8, 4, 4))
    lengths = torch.tensor([29, 11, 1, 29, 2])
    ways: dict[str, tuple[DeviceMesh, list[Any]]] = {
        "tokens": (mesh, [Shard(2)]),
        "heads": (mesh, [Shard(1)]),
        "items": (mesh, [Shard(0)]),
        "replicated": (mesh, [Replicate()]),
    }
    if mesh.size() % 2 == 0 and mesh.size() > 2:
        square = init_device_mesh("cpu", (2, mesh.size() // 2))
        ways["heads and tokens"] = (square, [Shard(1), Shard(2)])
    for way, (grid, placements) in ways.items():
        spread = [distribute_tensor(x, grid, placements) for x in (q, k, v)]
        for name, mask in {
            "causal": sl.masks.causal(),
            "padding": sl.masks.padding(lengths),
        }.items():
            case = f"look at DTensors by {way}, {name}"
            sight = sl.look(*spread, mask, measure=LOOK)
            truth = sl.look(q, k, v, mask, measure=LOOK)
            assert sight.output.placements == tuple(placements)
            yield Row(case, "output", largest(sight.output.full_tensor(), truth.output))
            whole = sight.gather() if sight.shard is not None else sight
            for row in compare(case, whole, truth):
                if row.statistic != "output":
                    yield row


class _Calls(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def dtensors_watched(mesh: DeviceMesh) -> Iterator[Row]:
    """A kernel called on DTensors that are spread by tokens, outside of ``context_parallel``."""
    torch.manual_seed(19)
    q, k, v = (torch.randn(2, 4, 23, 7) for _ in range(3))
    spread = [distribute_tensor(x, mesh, [Shard(2)]) for x in (q, k, v)]
    model = _Calls()
    for causal in (False, True):
        case = f"watched DTensors by tokens, {'causal' if causal else 'full'}"
        blind = model(*spread, causal=causal)
        with sl.watch(model, measure=LOOK) as seen:
            output = model(*spread, causal=causal)
        with sl.watch(model, measure=LOOK) as truth:
            model(q, k, v, causal=causal)
        same = torch.equal(output.to_local(), blind.to_local())
        yield Row(case, "output, bit for bit", 0.0 if same else float("inf"))
        yield from compare(case, seen.gather()[""], truth[""])
