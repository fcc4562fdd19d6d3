"""What to type next, as it must be typed here."""

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.cli.outputs import print_line

if TYPE_CHECKING:
    from sightline.tasks.task import Task
    from sightline.tasks.training import SuggestedCommands

__all__ = ["print_next_steps", "program"]


def program() -> str:
    """How this program is called from this folder: ``sightline``, ``.venv/bin/sightline``, ``python x.py``.

    A bare name is only given where the shell would find this very program under it.
    """
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{_shown(Path(sys.executable))} -m sightline"
    if called.suffix == ".py":
        return f"{_shown(Path(sys.executable))} {_shown(called)}"
    on_path = shutil.which(called.name)
    if on_path is not None and called.exists() and Path(on_path).samefile(called):
        return called.name
    return _shown(called)


def _shown(path: Path) -> str:
    """A path from this folder, if it lies below it; a program that the shell finds by its name alone."""
    on_path = shutil.which(path.name)
    if on_path is not None and Path(on_path) == path:
        return path.name
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def print_next_steps(task: "Task", out: Path, steps: "SuggestedCommands") -> None:
    """Print the run folder, and on standard error the two commands that come next."""
    print_line(out)
    folder = shlex.quote(str(out))
    split = "" if steps.split == "test" else f" --split {steps.split}"
    sample = shlex.quote(steps.sample) if steps.sample else task.inputs
    print_line(
        f"next:\n  {program()} evaluate {folder}{split}\n  {program()} look {folder} {sample}", err=True
    )
