"""Train in a child process, kill it at random instants with SIGKILL, go on until it is done, and compare.

Run as a program: ``python kill_and_resume.py FOLDER SEED [KILLS]``. The children are forked from one process
that has imported everything, so that an instant is an instant of training, not of importing.
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from sightline.train import TrainConfig, fit
from tests.train.toy import Toy, ToyObjective

CONFIG = TrainConfig(
    device="cpu",
    epochs=5,
    ema=0.9,
    average_last=2,
    log_every=2,
    save_steps=3,
    metric="accuracy",
    patience=5,
    lr=1e-2,
    tensorboard=False,
)


def train(out, *, resume):
    torch.manual_seed(7)
    fit(Toy(), ToyObjective(), CONFIG, out, resume=resume, shown=False)


def fingerprint(out):
    """The weights to use, the curve, and all tensors of the last checkpoint."""
    (last,) = sorted((out / "checkpoints" / "main").glob("[0-9]*"))[-1:]
    parts = [out / "model.safetensors", out / "metrics.csv", last / "tensors.safetensors"]
    return " ".join(hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in parts)


def child(out):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            train(out, resume=True)
            status = 0
        finally:
            os._exit(status)
    return pid


def saved(out):
    """How many checkpoints the run has written; the pointer names the last."""
    try:
        return int(json.loads((out / "checkpoints" / "main" / "latest.json").read_text())["checkpoint"])
    except FileNotFoundError:
        return 0


def main(folder, seed, kills):
    torch.set_num_threads(1)
    reference = folder / "reference"
    train(reference, resume=False)  # here, so that all is imported before the first child
    n = saved(reference)
    sys.stdout.write(f"{fingerprint(reference)}\n")
    chance = random.Random(seed)  # noqa: S311
    for number in range(kills):
        out = folder / f"killed-{number}"
        # A run is killed twice, the second time while it goes on: at any instant of any part of it.
        for after in sorted(chance.sample(range(1, n - 2), 2)):
            pid = child(out)
            while saved(out) < after:
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.03))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        _, status = os.waitpid(child(out), 0)
        assert status == 0, f"the run failed: {status}"
        sys.stdout.write(f"{fingerprint(out)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 3)
