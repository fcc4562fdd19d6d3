"""Write tests/golden/zoo.json anew: ``python -m tests.zoo.record [WORDS]``; only where a change is meant.

With words, only the entries whose names hold one of them. What fails is printed and leaves no facts, so that
its tests fail until it holds.
"""

import importlib.util
import sys
import time
import traceback
import warnings

import torch

from tests.golden.make import written as in_lines
from tests.zoo.golden import GOLDEN, read
from tests.zoo.models import ZOO
from tests.zoo.properties import PROPERTIES, applies, facts_of


def record(entry):
    """The facts of each property, and the names of those that fail."""
    facts, failed = {}, {}
    for name, holds in PROPERTIES.items():
        if applies(holds, entry):
            try:
                facts[name] = facts_of(entry, name)
            except Exception as error:  # noqa: BLE001 (whatever it is)
                failed[name] = error
    return facts, failed


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows, n_failed = read() if GOLDEN.exists() else {}, 0
    for key, entry in ZOO.items():
        if sys.argv[1:] and not any(word in key for word in sys.argv[1:]):
            continue
        if entry.needs and not importlib.util.find_spec(entry.needs):
            print(f"{key}: not tried, it needs {entry.needs}")
            continue
        start = time.process_time()
        rows[key], failed = record(entry)
        n_failed += len(failed)
        print(
            f"{key}: {len(rows[key])} hold, {len(failed)} fail, {time.process_time() - start:.1f} s",
            flush=True,
        )
        for name, error in failed.items():
            print(f"  FAILED {name}: {''.join(traceback.format_exception(error))}", flush=True)
        GOLDEN.write_text(in_lines({key: rows[key] for key in ZOO if key in rows}), encoding="utf-8")
    print(f"{len(rows)} entries, {n_failed} fail")


if __name__ == "__main__":
    main()
