"""What ``sharded_watch.py`` tries on each rank: models whose items, heads or layers are spread.

Every rank also has the whole model and the whole input, watches or looks at them alone, and compares.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import sightline as sl

B, T, E, HEADS, KV_HEADS, LAYERS = 7, 29, 32, 8, 4, 2
LOOK = sl.Look(map=(5, 3), top=3)
CPU_KERNEL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
GROUPS = [slice(0, 5), [7, 11, 13], range(3, 17)]


@dataclass(frozen=True)
class Row:
    """The largest error of one statistic in one case, over all ranks and layers."""

    case: str
    statistic: str
    error: float


class Attention(nn.Module):
    """Grouped queries as language models have them; how many heads it has its parameters say."""

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        d = E // HEADS
        self.d_head, self.causal = d, causal
        self.q_proj = nn.Linear(E, HEADS * d)
        self.k_proj, self.v_proj = (nn.Linear(E, KV_HEADS * d) for _ in range(2))
        self.o_proj = nn.Linear(HEADS * d, E)

    def forward(self, x: Tensor) -> Tensor:
        """Attend."""
        q, k, v = (
            p(x).unflatten(-1, (-1, self.d_head)).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        k, v = (y.repeat_interleave(q.size(1) // y.size(1), 1) for y in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Attention and a feed-forward layer."""

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.self_attn = Attention(causal=causal)
        self.up, self.down = nn.Linear(E, 2 * E), nn.Linear(2 * E, E)

    def forward(self, x: Tensor) -> Tensor:
        """Attend and think."""
        x = x + self.self_attn(x)
        return x + self.down(F.relu(self.up(x)))


class Model(nn.Module):
    """A few layers."""

    def __init__(self, *, causal: bool = True) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(causal=causal) for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        """Run them."""
        for layer in self.layers:
            x = layer(x)
        return x


def make(*, causal: bool = True, seed: int = 3, t: int = T) -> tuple[Model, Tensor]:
    """A model and an input, the same on every rank."""
    torch.manual_seed(seed)
    model = Model(causal=causal)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    return model, torch.randn(B, t, E)


# Comparisons


def largest(a: Tensor, b: Tensor) -> float:
    """The largest difference, of numbers above one as a share of them; infinite if the shapes differ."""
    if a.shape != b.shape:
        return float("inf")
    a, b = a.double(), b.double()
    same = a == b  # infinities too
    error = ((a - b).abs() / b.abs().clamp(min=1.0)).masked_fill(same, 0.0)
    return float(error.nan_to_num(nan=float("inf")).max()) if a.numel() else 0.0


def compare(case: str, whole: sl.Sight, truth: sl.Sight) -> Iterator[Row]:
    """Every statistic of a sight beside that of one process."""
    for name, x in truth.statistics.items():
        if name in whole.statistics:
            y = whole.statistics[name]
            yield Row(case, name, largest(y.full_tensor() if isinstance(y, DTensor) else y, x))
        elif name != "output":
            yield Row(case, name, float("inf"))


def questions(sight: sl.Sight, *, first: int | None = None) -> dict[str, Tensor]:
    """The answers to all later questions."""
    top = sight.top(5)
    return {
        "map": sight.map((4, 6)),
        "map of a window": sight.map(3, queries=(3, 17), keys=(2, 13)),
        "rows": sight.rows([1, 11, 22, 11]),
        "top": top[0],
        "top_at": top[1],
        "mass": sight.mass(GROUPS),
        "columns": sight.columns([0, 13, 22]),
        "offsets": sight.offsets(9, first=first),
        "received_from": sight.received_from((3, 19)),
        "received_from, max": sight.received_from((3, 19), reduce="max"),
    }


def compare_questions(
    case: str,
    sight: sl.Sight,
    truth: sl.Sight,
    part: Callable[[str, Tensor], Tensor],
    *,
    first: int | None = None,
) -> Iterator[Row]:
    """Every answer beside this rank's part of that of one process."""
    expected = questions(truth, first=first)
    for name, x in questions(sight, first=first).items():
        yield Row(case, name, largest(x, part(name, expected[name])))


def watched(model: nn.Module, x: Tensor, case: str, **options: Any) -> tuple[Any, list[Row]]:
    """Watch a model, and see whether its output is the same bit for bit."""
    with torch.no_grad():
        blind = model(x)
        with sl.watch(model, measure=LOOK, **options) as seen:
            output = model(x)
    assert seen.names() == [f"layers.{i}.self_attn" for i in range(LAYERS)], seen.names()
    assert not seen.unseen(), seen.unseen()
    return seen, [Row(case, "output, bit for bit", 0.0 if _equal(output, blind) else float("inf"))]


def _equal(a: Any, b: Any) -> bool:
    a, b = (x.to_local() if isinstance(x, DTensor) else x for x in (a, b))
    return bool(torch.equal(a, b))


def watch_alone(*, causal: bool = True, t: int = T, **options: Any) -> Any:
    """The same model in one process."""
    model, x = make(causal=causal, t=t)
    with torch.no_grad(), sl.watch(model, measure=LOOK, **options) as seen:
        model(x)
    return seen


# Data parallelism: each rank its items


def data_parallel(case: str, wrap: Callable[[nn.Module], nn.Module]) -> Iterator[Row]:
    """DDP or FSDP2; items are shared unevenly."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model, x = make()
    own = torch.arange(B).tensor_split(world)[rank]
    seen, rows = watched(wrap(model), x[own], case, keep=True)
    yield from rows
    truth = watch_alone(keep=True)
    whole = seen.gather(batch=dist.group.WORLD)
    for name in truth.names():
        yield from compare(case, whole[name], truth[name])
        yield from compare_questions(case, seen[name], truth[name], lambda _, answer: answer[own])


def ddp(_mesh: DeviceMesh) -> Iterator[Row]:
    """DistributedDataParallel."""
    yield from data_parallel("DDP", nn.parallel.DistributedDataParallel)


def fsdp(mesh: DeviceMesh) -> Iterator[Row]:
    """FSDP2: each layer sharded, and what is left."""
    from torch.distributed.fsdp import fully_shard

    def wrap(model: nn.Module) -> nn.Module:
        for layer in model.layers:  # type: ignore[union-attr]
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    yield from data_parallel("FSDP2", wrap)


# Tensor parallelism: each rank its heads


def tensor_parallel_model(mesh: DeviceMesh, *, use_local: bool) -> Model:
    """A model whose heads are spread; causal where torch can shard that on a CPU."""
    model, _ = make(causal=use_local)
    columns = ColwiseParallel(use_local_output=use_local)
    rows_of = RowwiseParallel(input_layouts=Shard(-1))
    for layer in model.layers:
        plan = {"q_proj": columns, "k_proj": columns, "v_proj": columns, "o_proj": rows_of}
        parallelize_module(layer.self_attn, mesh, plan)
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def tensor_parallel(case: str, mesh: DeviceMesh, *, use_local: bool) -> Iterator[Row]:
    """The rows of the projections are shared; what reaches the kernel is a local tensor or a DTensor."""
    model, (_, x) = tensor_parallel_model(mesh, use_local=use_local), make()
    seen, rows = watched(model, x, case, keep=True)
    yield from rows
    truth = watch_alone(causal=use_local, keep=True)
    whole = seen.gather()
    for name in truth.names():
        heads = seen[name].heads
        per = HEADS // mesh.size()
        assert heads == tuple(range(per * mesh.get_local_rank(), per * (mesh.get_local_rank() + 1))), heads
        yield from compare(case, whole[name], truth[name])
        yield from compare_questions(
            case, seen[name], truth[name], lambda _, answer, own=heads: answer[:, list(own)]
        )


def tp_local(mesh: DeviceMesh) -> Iterator[Row]:
    """Local tensors, as ``ColwiseParallel`` hands them out."""
    yield from tensor_parallel("TP, local tensors", mesh, use_local=True)


def tp_dtensor(mesh: DeviceMesh) -> Iterator[Row]:
    """DTensors all the way to the kernel."""
    yield from tensor_parallel("TP, DTensor", mesh, use_local=False)


def fsdp_and_tp(mesh: DeviceMesh) -> Iterator[Row]:
    """FSDP2 over one dimension of a mesh and tensor parallelism over the other, from four ranks on."""
    from torch.distributed.fsdp import fully_shard

    if mesh.size() < 4:
        return
    case = "FSDP2 and TP, local tensors"
    grid = init_device_mesh("cpu", (2, mesh.size() // 2), mesh_dim_names=("items", "heads"))
    model, (_, x) = tensor_parallel_model(grid["heads"], use_local=True), make()
    for layer in model.layers:
        fully_shard(layer, mesh=grid["items"])
    fully_shard(model, mesh=grid["items"])
    own = torch.arange(B).tensor_split(2)[grid.get_local_rank("items")]
    seen, rows = watched(model, x[own], case)
    yield from rows
    truth = watch_alone()
    whole = seen.gather(batch=grid.get_group("items"))
    for name in truth.names():
        yield from compare(case, whole[name], truth[name])


def shard_cpu_kernel() -> None:
    """Tell DTensor how torch's CPU kernel may be sharded, which it knows of the CUDA kernels alone."""

    @register_sharding(CPU_KERNEL)
    def _heads(*args: Any, **_options: Any) -> Any:
        rest = [None] * (len(args) - 3)
        ways = [Replicate(), Shard(0), Shard(1)]
        return [([way, way], [way, way, way, *rest]) for way in ways]


# Pipeline stages: each rank its layers


def pipeline(_mesh: DeviceMesh) -> Iterator[Row]:
    """Each rank runs its layers, and sees those, under their own names."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, world = dist.get_rank(), dist.get_world_size()
    case = "pipeline"
    model, x = make()
    whole = nn.ModuleList([*model.layers, *(Layer(causal=True) for _ in range(world - LAYERS))])
    torch.manual_seed(13)
    for layer in whole[LAYERS:]:
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.1)
    per = len(whole) // world
    stage_model = Model()
    stage_model.layers = nn.ModuleList(whole[rank * per : (rank + 1) * per])
    stage = PipelineStage(stage_model, rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=B)
    with torch.no_grad():
        y = x
        for layer in whole[: rank * per]:
            y = layer(y)
        with sl.watch(stage_model, measure=LOOK) as truth:
            expected = stage_model(y)
        # the first step runs each stage once more, on made-up input, to learn its shapes
        got = schedule.step(x) if rank == 0 else schedule.step()
        with sl.watch(stage_model, measure=LOOK) as seen:
            got = schedule.step(x) if rank == 0 else schedule.step()
    assert seen.names() == [f"layers.{i}.self_attn" for i in range(per)], (seen.names(), seen.unseen())
    if rank == world - 1:
        yield Row(case, "output", largest(got, expected))
    for name in seen.names():
        calls = seen.calls(name)
        assert len(calls) == B, len(calls)
        for key, x in truth[name].statistics.items():
            yield Row(case, key, largest(torch.cat([one.statistics[key] for one in calls]), x))
