"""Fuzzers: hostile command lines, runs and data by the thousand, seeded, bounded, with counts.

make fuzz MINUTES=30 SEED=1        # all of them
python -m tests.fuzz runs --cases 2000 --seed 1
"""

from tests.fuzz import data, runs

FUZZERS = {"data": data.fuzz, "runs": runs.fuzz}


def preload():
    """Import what commands need, so that each of them is only forked."""
    import importlib

    from sightline.tasks import kinds

    commands = ("app", "check", "data", "demo", "evaluate", "look", "positions", "predict", "train")
    for name in (*(f"sightline.cli.{x}" for x in commands), *(f"sightline.tasks.{x}" for x in kinds())):
        importlib.import_module(name)
    for name in (
        "accelerate",
        "safetensors.torch",
        "tokenizers",
        "pyarrow.parquet",
        "pycocoevalcap.cider.cider",
    ):
        importlib.import_module(name)
