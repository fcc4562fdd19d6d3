"""The command line: one short file a command, gathered in ``app.py``."""

import shlex
import signal
import sys
import warnings

__all__ = ["Stopped", "main"]

# What a command may need beyond torch: an absent one is answered with the line that installs it.
_EXTRAS = ("matplotlib", "rich", "typer")


class Stopped(Exception):  # noqa: N818
    """A command was stopped by a signal.

    Attributes:
        interrupt: What Python made of the signal.
    """

    def __init__(self, interrupt: KeyboardInterrupt) -> None:
        super().__init__(str(interrupt))
        self.interrupt = interrupt


def main(args: list[str] | None = None) -> None:
    """Run ``sightline``. What a user gets wrong is answered by one sentence and exit code 2."""
    # An image between the library's limit and twice that is refused by a sentence of ours, said once.
    warnings.filterwarnings("ignore", message="Image size .* could be decompression bomb")
    try:
        from sightline.cli.app import app  # noqa: PLC0415  typer is an extra
        from sightline.logs import print_to_stderr  # noqa: PLC0415

        print_to_stderr()
        app()(args, prog_name="sightline")
    except Stopped as stopped:
        _stop(stopped.interrupt, sys.argv[1:] if args is None else args)
    except ImportError as missing:
        package = (missing.name or "").partition(".")[0]
        if "pip install 'sightline[" in str(missing):  # a sentence already
            _refuse(str(missing))
        if package not in _EXTRAS:
            raise
        _refuse(f"the command line needs {package}, which is not installed; pip install 'sightline[cli]'")
    except (ValueError, TypeError, OSError) as problem:
        _refuse(str(problem))


def _stop(stopped: KeyboardInterrupt, args: list[str]) -> None:
    """Say where a training stands and how to go on; exit as a program does that a signal ended."""
    number = getattr(stopped, "number", signal.SIGINT)
    if str(stopped):
        from sightline.cli.next_steps import program  # noqa: PLC0415

        again = [*args, *([] if "--resume" in args else ["--resume"])]
        sys.stderr.write(f"{stopped}; go on with\n  {program()} {shlex.join(again)}\n")
    sys.exit(128 + number)


def _refuse(sentence: str) -> None:
    sys.stderr.write(" ".join(sentence.split()) + "\n")
    sys.exit(2)
