# ruff: noqa: INP001, T201
"""A tensor-parallel model, watched: ``torchrun --nproc-per-node 2 docs/figures/sharded_example.py``."""

import torch
import torch.distributed as dist
from sharded_watch_cases import Model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import sightline as sl

device = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if device == "cuda" else "gloo")
mesh = init_device_mesh(device, (dist.get_world_size(),))
torch.manual_seed(0)
model, x = Model().to(device), torch.randn(1, 29, 32, device=device)
columns, rows = ColwiseParallel(), RowwiseParallel()
for layer in model.layers:
    plan = {"q_proj": columns, "k_proj": columns, "v_proj": columns, "o_proj": rows}
    parallelize_module(layer.self_attn, mesh, plan)

with torch.no_grad(), sl.watch(model, measure=sl.Look(map=8)) as seen:
    model(x)
print(f"rank {dist.get_rank()}: {seen['layers.0.self_attn']}", flush=True)
whole = seen.gather()  # every rank calls it
if dist.get_rank() == 0:
    print(f"all ranks: {whole['layers.0.self_attn']}", flush=True)
dist.destroy_process_group()
