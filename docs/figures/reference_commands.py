# ruff: noqa: INP001
"""The page of the reference with every command: its help, and what some of them print."""

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

from sightline.cli.app import app

SIGHTLINE = Path(sys.executable).with_name("sightline")
TINY = {
    "caption": "--preset tiny --data scenes --n-train 200 --n-val 20 --n-test 20 --epochs 2 --no-tensorboard",
    "translate": "--preset default --data dates --n-train 300 --n-val 20 --n-test 20 --epochs 1 "
    "--d-model 16 --n-layers 1 --no-tensorboard",
    "classify": "--data digits --epochs 2 --no-tensorboard",
}
TRIED = [
    "--version",
    "data check digits",
    *(f"train {task} {flags} --out runs/{task}" for task, flags in TINY.items()),
    "check runs/classify",
    "evaluate runs/classify",
    "evaluate runs/translate --limit 5 --json",
    "caption runs/caption runs/caption/sample.png",
    "classify runs/classify runs/classify/sample.png",
    "translate runs/translate '3 May 1979' --unknown",
    "look runs/classify runs/classify/sample.png",
    "look runs/caption runs/caption/sample.png --out look.html",
    "positions --length 64 --d-model 32 --out heatmap.png",
]


def every_command() -> list[str]:
    """The words of every command, groups and what is in them."""
    found = [""]
    for name, lazy in app().commands.items():
        found += [name, *(f"{name} {inner}" for inner in getattr(lazy.load(), "commands", {}))]
    return found


def commands() -> str:
    """Every command: what it says of itself, and what some of them print."""
    lines = [
        "# Commands",
        "",
        "What every command says of itself, and what those print that are quick, on models trained for",
        "seconds; by `make pages`.",
        "",
        "## Tried",
        "",
    ]
    with tempfile.TemporaryDirectory() as place:
        for line in TRIED:
            done = subprocess.run(  # noqa: S602  the lines above
                f"{SIGHTLINE} {line}",
                shell=True,
                cwd=place,
                capture_output=True,
                text=True,
                env=_ENV,
                check=False,
            )
            if done.returncode:
                raise SystemExit(f"sightline {line}: {done.stderr}")
            said = _steady(done.stderr + done.stdout)
            lines += ["```text", f"$ sightline {line}", *said, "```", ""]
    lines += ["## Their help", ""]
    for words in every_command():
        name = f"sightline {words}".strip()
        lines += [f"### {name}", "", "```text", *help_of(words), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


_ENV = {
    "PATH": "/usr/bin:/bin",
    "COLUMNS": "100",
    "TERM": "dumb",
    "OMP_NUM_THREADS": "1",
    "NO_COLOR": "1",
    "HOME": "/nonexistent",
}


def help_of(words: str) -> list[str]:
    """The help of a command, as a terminal of 100 columns shows it."""
    out = io.StringIO()
    with mock.patch.dict(os.environ, _ENV), contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        app()([*words.split(), "--help"], prog_name="sightline")
    return [line.rstrip() for line in out.getvalue().strip("\n").splitlines()]


def _steady(text: str) -> list[str]:
    """Output without what differs from machine to machine: rates, seconds, and where the program lies."""
    text = text.replace(str(SIGHTLINE), "sightline")
    text = re.sub(r"  \S+ examples/s  \S+ left|about .* to go, evaluations not counted\n", "", text)
    rows = [line.rstrip() for line in text.splitlines() if line.strip()]
    return rows if len(rows) <= 40 else [*rows[:30], "..."]
