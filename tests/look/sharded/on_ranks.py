# ruff: noqa: E402
"""Two and three gloo processes: the cases of sharded_watch.py, the messages, what a rank can't know."""

import copy
import json
import sys
import warnings
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(next((ROOT / "docs").rglob("sharded_watch.py")).parent))

import sharded_cost
import torch
import torch.distributed as dist
from sharded_ranks import on_ranks
from sharded_watch import CASES, try_cases
from sharded_watch_cases import make, tensor_parallel_model
from sharded_watch_tokens import context_parallel_on_cpu
from torch import nn
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import sightline as sl
from sightline.look.heads import head_table
from sightline.look.sharded import watching
from sightline.look.sharded.placements import shard_of_module


def sentence(call):
    try:
        call()
    except (ValueError, TypeError) as error:
        return str(error)
    return "nothing was raised"


def ring_sight(**options):
    torch.manual_seed(1)
    own = dist.get_rank()
    q, k, v = (torch.randn(2, 3, 10, 5)[:, :, 5 * own : 5 * own + 5].contiguous() for _ in range(3))
    return sl.look(q, k, v, group=dist.group.WORLD, **options)


def sentences(mesh):
    """What is refused, and how."""
    rank = mesh.get_local_rank()
    q, k, v = (torch.randn(2, 4, 10, 5) for _ in range(3))
    spread = [distribute_tensor(x, mesh, [Shard(2)]) for x in (q, k, v)]
    sight = ring_sight()
    parallel = tensor_parallel_model(mesh, use_local=True)
    _, x = make()
    with torch.no_grad(), sl.watch(parallel) as seen:
        parallel(x)
    part = seen["layers.0.self_attn"]
    with torch.no_grad(), sl.watch(parallel, layers=f"layers.{rank}.*") as different:
        parallel(x)
    found = {
        "gradients": sentence(lambda: sl.look(q.requires_grad_(), k, v, group=dist.group.WORLD)),
        "three": sentence(lambda: sl.look(k[0], k[0], k[0], group=dist.group.WORLD)),
        "no group": sentence(lambda: sl.look(k, k, v, group="world")),
        "both": sentence(lambda: sl.look(*spread, group=dist.group.WORLD)),
        "unlike": sentence(lambda: sl.look(spread[0], distribute_tensor(k, mesh, [Replicate()]), spread[2])),
        "one": sentence(lambda: sl.look(spread[0], k, v)),
        "width": sentence(lambda: sl.look(*(distribute_tensor(y, mesh, [Shard(3)]) for y in (k, k, v)))),
        "rows of the mask": sentence(
            lambda: sl.look(k, k, v, torch.ones(7, 20).bool(), group=dist.group.WORLD)
        ),
        "rows": sentence(lambda: sight.rows([10])),
        "forgotten": sentence(lambda: sight.forget().rows([1])),
        "frame": sentence(sight.to_json),
        "save": sentence(lambda: sight.save("part.safetensors")),
        "copied": sentence(lambda: copy.deepcopy(sight).gather()),
        "indexed": sentence(part[:, 1].gather),
        "averaged": sentence(lambda: part.mean_heads().gather()),
        "different": sentence(different.gather),
        "table": sentence(lambda: head_table({"a": sight, "b": sight})),
        "repr": repr(part),
        "repr of tokens": repr(sight),
        "heads": [row.head for row in head_table(seen["layers.0.*"])],
        "chosen": part[:, 1:3].heads,
    }
    found["unknown"] = str(shard_of_module(parallel.layers[0].self_attn, 3, 4))
    return found


class Failing(nn.Module):
    """Attends, and fails."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        self.model(x)
        raise RuntimeError("no")


def refuse(_partials):
    raise RuntimeError("connection closed by peer")


def block(mesh):
    """What a block with context parallelism says inside, after an error, and of masks that it can't cut."""
    model, x = make(t=24)
    found = {}
    with context_parallel_on_cpu(mesh, x, balanced=True) as local:
        with sl.watch(model) as seen:
            model(local)
            found["inside"] = [seen.names(), seen.unseen()]
        found["after"] = [seen.names(), seen.unseen()]
        failing = Failing(model)
        try:
            with sl.watch(failing) as seen:
                failing(local)
        except RuntimeError as error:
            found["error"] = [str(error), seen.unseen()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with sl.watch(model, lengths=[24] * x.size(0)) as seen:
                model(local)
        found["lengths"] = seen.unseen()
        with warnings.catch_warnings(), mock.patch.object(watching, "reduce_partials", refuse):
            warnings.simplefilter("ignore")
            with sl.watch(model) as seen:
                model(local)
        found["apart"] = seen.unseen()
        with sl.watch(model, every=2) as seen:
            model(local)
            model(local)
        found["every"] = [len(calls) for _, calls in seen.items()]
    return found


def all_of_it(mesh):
    return {
        "cases": try_cases(mesh, list(CASES)),
        "messages": sharded_cost.count(mesh),
        "sentences": sentences(mesh),
        "block": block(mesh),
    }


if __name__ == "__main__":
    three = on_ranks(3, try_cases, ["ring", "torch_ring"])  # with two the next rank is also the one before
    Path(sys.argv[1]).write_text(json.dumps({"two": on_ranks(2, all_of_it), "three": three}))
