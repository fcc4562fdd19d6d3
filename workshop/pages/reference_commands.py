"""The page of the reference with the help of every command."""

import contextlib
import io
import os
from unittest import mock

from sightline.cli.app import app

_ENV = {
    "PATH": "/usr/bin:/bin",
    "COLUMNS": "100",
    "TERM": "dumb",
    "OMP_NUM_THREADS": "1",
    "NO_COLOR": "1",
    "HOME": "/nonexistent",
}


def every_command() -> list[str]:
    """The words of every command, groups and what is in them."""
    found = [""]
    for name, lazy in app().commands.items():
        found += [name, *(f"{name} {inner}" for inner in getattr(lazy.load(), "commands", {}))]
    return found


def commands() -> str:
    """Return the page: what every command says of itself."""
    lines = ["# Commands", "", "What `--help` of every command prints.", ""]
    for words in every_command():
        name = f"sightline {words}".strip()
        lines += [f"## {name}", "", "```text", *help_of(words), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def help_of(words: str) -> list[str]:
    """The help of a command, as a terminal of 100 columns shows it."""
    out = io.StringIO()
    with mock.patch.dict(os.environ, _ENV), contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        app()([*words.split(), "--help"], prog_name="sightline")
    return [line.rstrip() for line in out.getvalue().strip("\n").splitlines()]
