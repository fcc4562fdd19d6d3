"""Fuzzers: hostile command lines, runs, data and machines by the thousand, seeded, bounded, with counts.

make fuzz MINUTES=30 SEED=1        # all of them
python -m tests.fuzz runs --cases 2000 --seed 1
"""

import contextlib
import functools
import gc
import io
import tempfile

from tests.fuzz import api, data, faults, lines, pages, runs

FUZZERS = {
    "api": api.fuzz,
    "lines": lines.fuzz,
    "runs": runs.fuzz,
    "data": data.fuzz,
    "pages": pages.fuzz,
    "faults": faults.fuzz,
}


@functools.cache
def preload():
    """Give a command of each kind, so that all is imported and each case is only forked."""
    from sightline.cli import main

    with tempfile.TemporaryDirectory() as place:
        words = [
            [*name.split(), *flags.split(), "--out", f"{place}/{name}", "--no-tensorboard"]
            for name, flags in lines.TINY.items()
        ]
        words += [["look", f"{place}/train {kind}", *lines.INPUTS[kind][:1]] for kind in lines.INPUTS]
        words += [["evaluate", f"{place}/train {kind}", "--limit", "1"] for kind in lines.INPUTS]
        words += [["data", "check", "digits"]]
        for one in words:
            quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
            with quiet[0], quiet[1], contextlib.suppress(SystemExit):
                main(one)
    gc.collect()
    gc.freeze()  # no child need copy it
