"""The toy run of the test with two processes: ``accelerate launch ... toy_run.py FOLDER``."""

import dataclasses
import sys
from pathlib import Path

import torch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from sightline.train import fit
    from tests.train.toy import QUICK, Toy, ToyObjective

    torch.manual_seed(7)
    # A last batch of one example: one of the two processes has nothing to do in it.
    task = ToyObjective(batch_size=13)
    config = dataclasses.replace(QUICK, epochs=3, log_every=1, clip=0.6)
    fit(Toy(dropout=0.0), task, config, Path(sys.argv[1]), shown=False)
    sys.stdout.write(f"one of {torch.distributed.get_world_size()}\n")
