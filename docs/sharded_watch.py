"""What is seen of sharded attention on 2 and 4 processes, beside one process: the table of many_machines.md.

    python docs/sharded_watch.py                    # 2 and 4 processes, all cases, about four minutes of processor
    python docs/sharded_watch.py --ranks 2 --cases ring ddp

Each process joins a gloo group on this machine's CPU. A row of the table has the largest difference, over all
ranks, layers and entries, between what the ranks have seen and what one process sees.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from sharded_watch_cases import CASES, Row, shard_cpu_kernel
from torch.distributed.device_mesh import init_device_mesh

STATISTICS = ("output", "lse", "entropy", "peak", "peak_at", "received", "map", "top", "top_at", "rows", "mass",
              "columns", "offsets", "received_from")  # fmt: skip


def work(rank: int, world: int, folder: str, names: list[str]) -> None:
    """One rank: try all cases, and leave the rows in a file."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*(prototype|deprecated|does not have|not implement).*")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    try:
        mesh = init_device_mesh("cpu", (world,))
        shard_cpu_kernel()
        rows = [row for case in CASES if case.__name__ in names for row in case(mesh)]
        everyone: list[list[Row]] = [[] for _ in range(world)]
        dist.all_gather_object(everyone, rows)
        found: dict[tuple[str, str], float] = {}
        for row in (row for one in everyone for row in one):
            key = (row.case, row.statistic)
            found[key] = max(found.get(key, 0.0), row.error)
        if rank == 0:
            Path(folder, "rows.json").write_text(
                json.dumps([[case, statistic, error] for (case, statistic), error in found.items()])
            )
        dist.barrier()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    dist.destroy_process_group()


def run(world: int, names: list[str]) -> list[Row]:
    """All rows of so many processes; they are forked, so that each need not import torch again."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=work, args=(rank, world, folder, names)) for rank in range(world)]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join()
        if any(one.exitcode for one in ranks):
            sys.exit(f"a rank of {world} failed: exit codes {[one.exitcode for one in ranks]}")
        return [Row(*row) for row in json.loads(Path(folder, "rows.json").read_text())]


def table(by_world: dict[int, list[Row]]) -> str:
    """A line per case: the largest error of its numbers, and of any place that was found otherwise."""
    lines = ["| case | " + " | ".join(f"{n} ranks, largest error" for n in by_world) + " | worst statistic |"]
    lines.append("|---|" + "---|" * (len(by_world) + 1))
    cases = dict.fromkeys(row.case for rows in by_world.values() for row in rows)
    for case in cases:
        cells, worst = [], ("", -1.0)
        for rows in by_world.values():
            own = [row for row in rows if row.case == case]
            cells.append(f"{max((row.error for row in own), default=float('nan')):.1e}")
            worst = max([worst, *((row.statistic, row.error) for row in own)], key=lambda x: x[1])
        lines.append(f"| {case} | " + " | ".join(cells) + f" | {worst[0]} |")
    return "\n".join(lines)


def statistics_table(by_world: dict[int, list[Row]]) -> str:
    """A line per statistic: the largest error in any case of float32."""
    lines = ["| statistic | " + " | ".join(f"{n} ranks" for n in by_world) + " |", "|---|" + "---|" * len(by_world)]
    for name in dict.fromkeys(row.statistic for rows in by_world.values() for row in rows):
        errors = [
            max((row.error for row in rows if row.statistic == name and "float64" not in row.case), default=0.0)
            for rows in by_world.values()
        ]
        lines.append(f"| {name} | " + " | ".join(f"{x:.1e}" for x in errors) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [case.__name__ for case in CASES]
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--cases", nargs="+", choices=names, default=names)
    parser.add_argument("--json", help="write all rows here")
    options = parser.parse_args()
    by_world = {world: run(world, options.cases) for world in options.ranks}
    if options.json:
        rows = {world: [[r.case, r.statistic, r.error] for r in rows] for world, rows in by_world.items()}
        Path(options.json).write_text(json.dumps(rows))
    print(table(by_world))  # noqa: T201
    print()  # noqa: T201
    print(statistics_table(by_world))  # noqa: T201


if __name__ == "__main__":
    main()
