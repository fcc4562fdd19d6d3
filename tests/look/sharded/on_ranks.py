"""Two and three gloo processes: the cases of sharded_watch.py, the messages, what a rank can't know."""

import copy
import json
import operator
import sys
import warnings
from pathlib import Path
from unittest import mock

import sharded_cost
import torch
import torch._dynamo  # as DDP does at its first use: once, not in every rank
import torch.distributed as dist
from sharded_ranks import on_ranks
from sharded_watch import CASES, try_cases
from sharded_watch_cases import make, tensor_parallel_model
from sharded_watch_tokens import context_parallel_on_cpu
from torch import nn
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import sightline as sl
from sightline.look.heads import head_table
from sightline.look.sharded.placements import shard_of_module
from sightline.watch import sharded as watching


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
    return found | refused_batches(rank)


def refused_batches(rank):
    """What the ranks of a data-parallel group are told of batches that do not go together."""
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def gather(x, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that nothing was seen
            with torch.no_grad(), sl.watch(attention) as seen:
                if x is not None:
                    attention(x, x, x, **options)
        return seen.gather(batch=dist.group.WORLD)

    hidden = {"key_padding_mask": torch.tensor([[False, False, True]] * 2)} if rank else {}
    masked = gather(torch.randn(2, 3, 8), **hidden)[""]
    alone = torch.randn(3, 5)
    return {
        "nothing": str(gather(None).names()),
        "nothing here": sentence(lambda: gather(None if rank else torch.randn(2, 3, 8))),
        "lengths": sentence(lambda: gather(torch.randn(2, 5 + rank, 8))),
        "no items": sentence(lambda: sl.look(alone, alone, alone).gather(batch=dist.group.WORLD)),
        "masked on one rank": f"{masked.is_masked}, {masked.padding}",
    }


def nan_query(mesh):
    """Which answers are not those of one process where a query is NaN and another may look at nothing."""
    torch.manual_seed(3)
    q, k, v = (torch.randn(2, 3, 14, 5) for _ in range(3))
    q[0, 1, 4, 2] = torch.nan
    rank = mesh.get_local_rank()
    own = slice(5 * rank, 5 + 9 * rank)  # 5 and 9 of them
    nothing = torch.ones(14, 14, dtype=torch.bool)
    nothing[[3, 12]] = False
    masks = {"none": None, "causal": sl.masks.causal(), "padding": sl.masks.padding([4, 14]), "rows": nothing}
    wrong = []
    for name, mask in masks.items():
        part = mask[own] if isinstance(mask, torch.Tensor) else mask
        mine = [x[:, :, own].contiguous() for x in (q, k, v)]
        sight = sl.look(*mine, part, group=dist.group.WORLD, measure=sl.Look(map=(14, 7), top=2))
        whole = sl.look(q, k, v, mask, measure=sl.Look(map=(14, 7), top=2))
        questions = {what: operator.attrgetter(what) for what in ("lse", "entropy", "peak", "peak_at")}
        questions |= {
            # Torch's kernel for the CPU gives zeros without a mask and NaN with one.
            "output": lambda x: x.output.masked_fill(x.lse.isnan().unsqueeze(-1), torch.nan),
            "rows": lambda x: x.rows(range(14)).sum(-1),
            "top": lambda x: x.top(2)[0][..., 0],
            "mass": lambda x: x.mass([slice(0, 6), [5, 13]]).sum(-1),
        }
        wrong += [f"output, {name}"] * (not torch.equal(sight.output.isnan().any(-1), sight.lse.isnan()))
        if name != "causal":  # keys that come later are NaN there or zero, as tiles are cut
            questions |= {
                "received": operator.attrgetter("received"),
                "received_from, max": lambda x: x.received_from((1, 9), "max"),
                "map": lambda x: x.map((14, 7)),
            }
        for what, ask in questions.items():
            wrong += [f"{what}, {name}"] * differ(ask(sight), ask(whole), own)
    return wrong


def differ(part, whole, own):
    """Whether a rank's answer is not the whole's, or its own part of it."""
    dim = next((i for i, (a, b) in enumerate(zip(part.shape, whole.shape, strict=True)) if a != b), None)
    expected = whole if dim is None else whole.narrow(dim, own.start, own.stop - own.start)
    return not torch.allclose(part, expected, rtol=1e-5, atol=1e-6, equal_nan=True)


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
        with warnings.catch_warnings(), mock.patch.object(watching, "reduce_together", refuse):
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
        "nan": nan_query(mesh),
    }


def of_three(mesh, dtype):
    """What two ranks cannot show, where the next is also the one before."""
    return [
        *((row.case, row.statistic, row.error) for row in CASES["ring"](mesh, (getattr(torch, dtype),))),
        *try_cases(mesh, ["torch_ring"]),
    ]


if __name__ == "__main__":
    _, out, dtype, *two = sys.argv
    found = {"three": on_ranks(3, of_three, dtype)}
    if two:
        found["two"] = on_ranks(2, all_of_it)
    Path(out).write_text(json.dumps(found))
