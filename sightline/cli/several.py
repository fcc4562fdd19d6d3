"""A command in several processes, started by torchrun or ``accelerate launch``: it prints and ends as one."""

import os
import sys
from typing import Any

from sightline.train.launch import launched

__all__ = ["run_command", "write_last_words"]


def run_command(command: Any, args: list[str] | None) -> None:
    """Run a command; of several processes that were given it, what is printed or refused is so once.

    Raises:
        ValueError: In several processes, for what typer would print in each.
    """
    if not launched():
        command(args, prog_name="sightline")
        return
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # what torch notes of sockets when a process ends
    from typer import BadParameter  # noqa: PLC0415  an extra

    from sightline.train.processes import leave, print_lines_once  # noqa: PLC0415

    refused: Any = BadParameter.__mro__[2]  # what typer raises for whatever is wrong with a command line
    print_lines_once()
    try:
        command(args, prog_name="sightline", standalone_mode=False)
    except refused as problem:
        raise ValueError(problem.format_message()) from None
    leave()


def write_last_words(text: str) -> None:
    """Write to standard error why a command ends: of several processes one does, and the others wait."""
    if not launched():
        sys.stderr.write(text)
        return
    from sightline.train.processes import say_once  # noqa: PLC0415

    say_once(text)
