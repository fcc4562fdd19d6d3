"""A tensor-parallel model, watched on every process.

Usage: torchrun --nproc-per-node 2 examples/sharded.py          on a CPU or on GPUs
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import sightline as sl

WIDTH, HEAD = 32, 4


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        projections = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (p(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for p in projections)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.o_proj(mixed.transpose(1, 2).flatten(2))


device = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if device == "cuda" else "gloo")
mesh = init_device_mesh(device, (dist.get_world_size(),))
torch.manual_seed(0)
model, x = nn.Sequential(Attention(), Attention()).to(device), torch.randn(1, 29, WIDTH, device=device)
columns, rows = ColwiseParallel(), RowwiseParallel()
for layer in model:
    plan = {"q_proj": columns, "k_proj": columns, "v_proj": columns, "o_proj": rows}
    parallelize_module(layer, mesh, plan)

with torch.no_grad(), sl.watch(model, measure=sl.Look(map=8)) as seen:
    model(x)
print(f"rank {dist.get_rank()}: {seen['0']}", flush=True)
whole = seen.gather()  # every rank calls it
if dist.get_rank() == 0:
    print(f"all ranks: {whole['0']}", flush=True)
dist.destroy_process_group()
