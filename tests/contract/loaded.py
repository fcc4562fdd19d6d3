"""What some first steps load: ``python loaded.py FILE STEP... [-- WORDS...]`` writes it as JSON to a file.

Each step is written with the number of our modules, and with the packages of others, that are loaded when it
is done. What comes after ``--`` is a command line, given at the end.
"""

import json
import signal
import sys
from pathlib import Path

# Packages that take time or room, or that an extra installs. Others come and go with their versions.
HEAVY = """accelerate anywidget babel datasets fastapi IPython jaxtyping jinja2 matplotlib numpy pandas PIL
    pyarrow rich sacrebleu safetensors scipy sklearn tensorboard tokenizers torch torchvision transformers
    triton typer uvicorn"""


def loaded():
    """How many modules of ours there are, and which heavy packages of others."""
    names = [name.partition(".")[0] for name in sys.modules]
    return {"modules": names.count("sightline"), "packages": sorted({*HEAVY.split()} & {*names})}


def take(step):
    """Take a first step."""
    import sightline as sl

    if step == "import sightline":
        return
    import torch

    x = torch.zeros(1, 1, 3, 4)
    if step == "sl.look":
        sl.look(x, x, x)
    if step == "sl.watch":
        layer = torch.nn.MultiheadAttention(4, 1)
        with sl.watch(layer) as seen:
            layer(x[0], x[0], x[0])
        assert seen.names() == [""]


def main(file, steps, words):
    """Take the steps, then give the command, and write what was loaded; at SIGUSR1 what is loaded so far."""
    found = {}

    def write(*_):
        if words:
            found[" ".join(words[: 1 + (words[0] == "train")])] = loaded()
        Path(f"{file}.part").write_text(json.dumps(found), encoding="utf-8")
        Path(f"{file}.part").rename(file)

    signal.signal(signal.SIGUSR1, write)
    for step in steps:
        take(step)
        found[step] = loaded()
    if words:
        from sightline.cli import main as command

        try:
            command(words)
        except SystemExit as ended:
            if ended.code:
                raise
    write()


if __name__ == "__main__":
    given = sys.argv[2:]
    cut = given.index("--") if "--" in given else len(given)
    main(sys.argv[1], given[:cut], given[cut + 1 :])
