# ruff: noqa: INP001, S311, S603, T201
"""Bulk prediction by two processes that are killed three times: every input exactly once in the result.

    python docs/figures/bulk_prediction.py runs/digits --inputs 100000 --processes 2 --kills 3

Draws scenes into tar shards in a temporary folder (10,000 different ones, repeated under other names),
predicts them with ``torchrun -m sightline``, kills torchrun and all its workers with SIGKILL at random
moments, and gives the same command again until it ends. Then the rows are compared with the inputs, and with
a run of one process that nobody killed. The folder is removed at the end.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from sightline.data.pack import FORMATS
from sightline.data.pack_examples import PackedExample, packed_examples
from sightline.data.scenes import scenes_set
from sightline.models.run_folder import kind_of

_DIFFERENT = 10_000
_A_SHARD = 5_000


def make(folder: Path, n: int) -> list[str]:
    """Write the shards; gives the names of all inputs in order."""
    folder.mkdir(parents=True)
    drawn = list(packed_examples(scenes_set(min(n, _DIFFERENT), 0, 0), "train"))
    names = []
    for number, first in enumerate(range(0, n, _A_SHARD)):
        path = folder / f"scenes-{number:06d}.tar"
        with FORMATS["tar"](path, None) as writer:
            for i in range(first, min(first + _A_SHARD, n)):
                scene = drawn[i % len(drawn)]
                writer.add(
                    f"{i:08d}", PackedExample(f"{i}", scene.image, scene.ending, captions=("a scene",))
                )
                names.append(f"{path.name}/{i - first}")
    return names


def command(run: Path, shards: Path, out: Path, processes: int) -> list[str]:
    """The command, alone or by torchrun."""
    words = ["-m", "sightline", kind_of(run), str(run), str(shards), "--out", str(out), "--device", "cpu"]
    if processes == 1:
        return [sys.executable, *words]
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [sys.executable, *torchrun, *words]


def parts_of(out: Path) -> dict[str, int]:
    """The parts that are there, and when each was written."""
    folder = out.with_name(f"{out.name}.parts")
    found = {}
    for path in folder.glob("part-*") if folder.is_dir() else []:
        try:
            found[path.name] = path.stat().st_mtime_ns
        except FileNotFoundError:  # merged meanwhile
            continue
    return found


def workers_of(parent: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    children = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/stat")
        if path.exists() and int(path.read_text().rpartition(")")[2].split()[1]) == parent
    ]
    return [*children, *(pid for child in children for pid in workers_of(child))]


def main() -> None:
    """Make, predict, kill, compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--within", type=Path, default=None, help="where the temporary folder is made")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.within) as place:
        shards, out, rng = Path(place) / "shards", Path(place) / "results.parquet", random.Random(0)
        names = make(shards, args.inputs)
        print(f"{len(names):,} inputs in {len(list(shards.iterdir()))} shards", flush=True)
        total = -(-args.inputs // 256)
        seen: dict[str, int] = {}
        begun = time.monotonic()
        for stop in [*sorted(rng.sample(range(1, total), args.kills)), None]:
            process = subprocess.Popen(
                command(args.run, shards, out, args.processes),
            )
            while process.poll() is None and (stop is None or len(parts_of(out)) < stop):
                time.sleep(0.05)
            if process.poll() is None:
                for pid in [process.pid, *workers_of(process.pid)]:
                    os.kill(pid, signal.SIGKILL)
            code = process.wait()
            now = parts_of(out)
            again = sum(now.get(name, when) != when for name, when in seen.items())
            seen |= now
            print(f"ended with {code}, {len(now)} parts there, {again} written twice", flush=True)
        seconds = time.monotonic() - begun
        table = pq.read_table(out)
        found = table.column("input").to_pylist()
        print(
            f"{table.num_rows:,} rows, {len(set(found)):,} different inputs, in order: {found == names}, "
            f"errors: {len(found) - table.column('error').null_count}; {seconds:.0f} s by {args.processes}"
        )
        alone = Path(place) / "alone.parquet"
        subprocess.run(command(args.run, shards, alone, 1), check=True)
        print("the rows of one process that nobody killed are the same:", pq.read_table(alone).equals(table))


if __name__ == "__main__":
    main()
