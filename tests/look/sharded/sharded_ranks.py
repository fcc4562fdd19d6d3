"""Several processes on this machine that form a gloo group, for the scripts about sharded attention."""

import json
import multiprocessing
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from sharded_watch_cases import shard_cpu_kernel
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


def on_ranks(world: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """What a function of a mesh gives on each of so many ranks, as JSON has it.

    The processes are forked, so that each need not import torch again.
    """
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=_work, args=(rank, world, folder, function, args)) for rank in range(world)
        ]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join()
        if any(one.exitcode for one in ranks):
            sys.exit(f"a rank of {world} failed: exit codes {[one.exitcode for one in ranks]}")
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(world)]


def _work(rank: int, world: int, folder: str, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*prototype.*")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    try:
        mesh: DeviceMesh = init_device_mesh("cpu", (world,))
        shard_cpu_kernel()
        Path(folder, f"{rank}.json").write_text(json.dumps(function(mesh, *args)))
        dist.barrier()
    except BaseException:  # noqa: BLE001 (the others would wait for it)
        traceback.print_exc()
        os._exit(1)
    dist.destroy_process_group()
