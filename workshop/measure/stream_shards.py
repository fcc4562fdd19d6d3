# ruff: noqa: S311
"""Stream shards that fit no memory: peak memory of each process, and the same batches after a kill.

    python -m workshop.measure.stream_shards --gigabytes 20 --processes 2

Makes shards of images with captions in a temporary folder: small pictures in JPEGs of a megabyte, filled up
with comments of zeros, and the same pictures in every shard. So it is reading that is measured, and the files
are sparse: they take little of the disk. Reads one epoch of batches by several processes, each its share, as
a training does, and then again by processes that are killed with SIGKILL at random batches and begin where
they were. Every batch is hashed: pixels, token ids, indices. The folder is removed at the end.
"""

import argparse
import hashlib
import io
import json
import random
import resource
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from sightline.data.batches import prefetch
from sightline.data.captions import read_captions
from sightline.models.captioner import CaptionerConfig
from sightline.tasks.caption.data import CaptionData, learn_tokens
from sightline.tasks.caption.objective import CaptionObjective
from sightline.train.config import TrainConfig
from sightline.untrusted import format_bytes

_SIDE = 64  # pixels
_A_PICTURE = 1_000_000  # bytes of its file
_A_SHARD = 256_000_000
_BATCH = 64


def make(folder: Path, gigabytes: float) -> int:
    """Write the shards; gives their bytes."""
    folder.mkdir(parents=True)
    first, rng = folder / "train-000000.tar", np.random.default_rng(0)
    pictures = []
    for _ in range(7):
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (_SIDE, _SIDE, 3), dtype=np.uint8)).save(
            file, "JPEG", quality=92
        )
        pictures.append(filled_up(file.getvalue()))
    with tarfile.open(first, "w", format=tarfile.USTAR_FORMAT) as tar:
        number = 0
        while tar.offset < _A_SHARD:
            row = {"captions": [f"picture {number} of a shard", f"noise number {number}"]}
            _add(tar, f"{number:06d}.jpg", pictures[number % len(pictures)])
            _add(tar, f"{number:06d}.json", json.dumps(row).encode())
            number += 1
    size = first.stat().st_size
    n = round(gigabytes * 1e9 / size)
    for i in range(1, n):
        copy_sparsely(first, folder / f"train-{i:06d}.tar")
    with tarfile.open(folder / "val-000000.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        _add(tar, "0.jpg", pictures[0])
        _add(tar, "0.txt", b"a picture to choose by")
    return n * size


def filled_up(jpeg: bytes) -> bytes:
    """A JPEG with so many comments of zeros that it has a megabyte."""
    comment = b"\xff\xfe\xff\xff" + bytes(65533)
    return jpeg[:2] + comment * (_A_PICTURE // len(comment)) + jpeg[2:]


def copy_sparsely(source: Path, target: Path) -> None:
    """Copy a file; pages of zeros are left out of the disk, and are zeros when they are read."""
    with source.open("rb") as file, target.open("wb") as to:
        while page := file.read(4096):
            if page.count(0) == len(page):
                to.seek(len(page), 1)
            else:
                to.write(page)
        to.truncate(source.stat().st_size)


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def read(folder: Path, log: Path, rank: int, world: int, first: int) -> None:
    """Read this process's share of each batch from one on, and log its hash."""
    torch.set_num_threads(1)
    captions = read_captions(folder)
    data, train = CaptionData(vocabulary=500), TrainConfig(batch_size=_BATCH)
    tokens = learn_tokens(captions, data)
    objective = CaptionObjective(captions, tokens, CaptionerConfig(vocab_size=len(tokens)), train, data)
    objective.prepare(torch.device("cpu"))
    plan = objective.plan(0)[first:]
    with (
        log.open("a") as file,
        prefetch(lambda batch: objective.load(batch[rank::world], 0), plan, threads=1) as batches,
    ):
        for step, batch in enumerate(batches, first):
            digest = hashlib.blake2b(digest_size=8)
            for tensor in (batch.indices, batch.ids, batch.pictures):
                digest.update(tensor.contiguous().numpy().tobytes())
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            file.write(f"{step} {len(batch.indices)} {digest.hexdigest()} {peak}\n")
            file.flush()


def start(folder: Path, logs: list[Path], first: int) -> list[subprocess.Popen[bytes]]:
    """One process a share."""
    words = [
        sys.executable,
        "-m",
        "workshop.measure.stream_shards",
        "--folder",
        str(folder),
        "--first",
        str(first),
    ]
    return [
        subprocess.Popen([*words, "--log", str(log), "--rank", str(rank), "--world", str(len(logs))])
        for rank, log in enumerate(logs)
    ]


def hashes(log: Path) -> dict[int, str]:
    """What was read at each step; a line that was cut off is none, and one that was read twice must agree."""
    found: dict[int, str] = {}
    for line in log.read_text().splitlines() if log.exists() else []:
        parts = line.split()
        if len(parts) == 4 and found.setdefault(int(parts[0]), parts[2]) != parts[2]:
            raise ValueError(f"step {parts[0]} of {log.name} differs")
    return found


def main() -> None:
    """Make, read, kill, compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=20.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of the epoch that is read again with kills")
    parser.add_argument("--within", type=Path, default=None, help="where the temporary folder is made")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--world", type=int)
    parser.add_argument("--first", type=int)
    args = parser.parse_args()
    if args.rank is not None:
        read(args.folder, args.log, args.rank, args.world, args.first)
        return
    with tempfile.TemporaryDirectory(dir=args.within) as place:
        folder, rng = Path(place) / "shards", random.Random(0)
        size = make(folder, args.gigabytes)
        shards = len(list(folder.glob("train-*")))
        print(
            f"{shards} shards of {format_bytes(size)} together, {format_bytes(size // shards)} each",
            flush=True,
        )
        logs = [Path(place) / f"whole-{rank}" for rank in range(args.processes)]
        begun = time.monotonic()
        for process in start(folder, logs, 0):
            if process.wait():
                raise SystemExit("a process failed")
        seconds = time.monotonic() - begun
        whole = [hashes(log) for log in logs]
        steps = len(whole[0])
        peaks = [max(int(line.split()[3]) for line in log.read_text().splitlines()) for log in logs]
        counts = [sum(int(line.split()[1]) for line in log.read_text().splitlines()) for log in logs]
        speed = size / seconds / 1e6
        print(f"{steps} batches of {_BATCH}, {sum(counts)} examples, {seconds:.0f} s, {speed:.0f} MB/s")
        print("peak memory of each process:", ", ".join(map(format_bytes, peaks)), flush=True)
        again = [Path(place) / f"killed-{rank}" for rank in range(args.processes)]
        end = int(steps * args.share)
        for stop in [*sorted(rng.sample(range(1, end), args.kills)), end]:
            first = min(len(hashes(log)) for log in again)
            processes = start(folder, again, first)
            while min(len(hashes(log)) for log in again) < stop and any(x.poll() is None for x in processes):
                time.sleep(0.2)
            for process in processes:
                process.send_signal(signal.SIGKILL)
                process.wait()
            print(
                f"from batch {first}, killed after batch {min(len(hashes(log)) for log in again)}", flush=True
            )
        same = sum(
            one.get(step) == digest
            for one, other in zip(whole, again, strict=True)
            for step, digest in hashes(other).items()
        )
        total = sum(len(hashes(log)) for log in again)
        print(f"{same} of {total} shares of batches are the same bytes as without a kill")


if __name__ == "__main__":
    main()
