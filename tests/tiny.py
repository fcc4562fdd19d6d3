"""Commands that take a fraction of a second, of every task, and what they read."""

import contextlib
import functools
import gc
import io
import tempfile
from pathlib import Path

HERE = Path(__file__).parent / "fixtures/written_by_0_1"
IMAGE = HERE / "data/pictures/05.png"
TINY = {
    "train caption": "--preset default --data scenes --n-train 12 --n-val 3 --n-test 3 --steps 1 "
    "--image-size 8 --patch 4 "
    "--d-model 4 --n-heads 2 --n-layers 1 --d-ff 4 --metric loss --max-length 5",
    "train translate": "--preset default --data dates --n-train 12 --n-val 3 --n-test 3 --steps 1 "
    "--vocabulary 90 --d-model 4 "
    "--n-layers 1 --metric loss --max-length 41",
    "train classify": "--data digits --steps 1 --patch 4 --d-model 8 --n-heads 2 --n-layers 1 --d-ff 4",
}
INPUTS = {
    "caption": [str(IMAGE)],
    "classify": [str(IMAGE)],
    "translate": ["3 May 1999", "--unknown"],
}


@functools.cache
def preload():
    """Give a command of each kind, so that all is imported and each case is only forked."""
    from sightline.cli import main

    with tempfile.TemporaryDirectory() as place:
        words = [
            [*name.split(), *flags.split(), "--out", f"{place}/{name}", "--no-tensorboard"]
            for name, flags in TINY.items()
        ]
        words += [["look", f"{place}/train {kind}", *INPUTS[kind][:1]] for kind in INPUTS]
        words += [["evaluate", f"{place}/train {kind}", "--limit", "1"] for kind in INPUTS]
        words += [["data", "check", "digits"]]
        for one in words:
            quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
            with quiet[0], quiet[1], contextlib.suppress(SystemExit):
                main(one)
    gc.collect()
    gc.freeze()  # no child need copy it
