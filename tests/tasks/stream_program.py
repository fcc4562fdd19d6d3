"""Trains a captioner and a classifier on streams, each in two processes; leaves their runs.

python tests/tasks/stream_program.py FOLDER
"""

import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import accelerate  # noqa: F401 - imported before the forks
import datasets  # noqa: F401
import torch
import torch._dynamo

sys.path.insert(0, str(Path(__file__).parents[2]))
from sightline import cli
from sightline.data import stream
from tests.data.shard_sets import as_shards
from tests.signals import own_signals
from tests.tasks.cases import CASES
from tests.train.groups import Group

BUFFER = 1500  # bytes; a few images
BATCHES = {"some": 6, "all": 30, "five": 5}  # 6: the last batch of the captions has one example


def words(case, data, out, size):
    """A training without what depends on a process's share: nothing is dropped, and no images are mixed."""
    without = ["--dropout", "0"]
    if case.kind == "classify":
        without += ["--drop-path", "0", "--mixup", "0", "--cutmix", "0"]
    return [str(x) for x in case.train_on(data, out, "--batch-size", size, "--log-every", 1, *without)]


def train(case, data, out, size):
    def command():
        with redirect_stdout(StringIO()):
            cli.main(words(case, data, out, size))

    return command


def main(folder):
    torch.set_num_threads(1)
    stream.BUFFER_BYTES = BUFFER
    found = {}
    for case in CASES:
        if case.name in {"caption", "classify"}:
            shards = as_shards(case.folder, case.kind, folder / f"{case.name} shards")
            for size, batch in BATCHES.items():
                name = f"{case.name} {size}"
                group = Group(2, train(case, shards, folder / name, batch), folder / "err" / name).end()
                found[name] = {"codes": group.codes, "lines": group.errors.splitlines()}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    with own_signals():
        main(Path(sys.argv[1]))
