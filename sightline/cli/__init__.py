"""The command line: one short file a command, gathered in ``app.py``."""

import logging
import shlex
import signal
import sys
import warnings

from sightline.messages import logger, printable

__all__ = ["Stopped", "import_commands", "main", "print_log"]

# What a command may need beyond torch: an absent one is answered with the line that installs it.
_EXTRAS = ("matplotlib", "rich", "typer")
_OUT_OF_MEMORY = (
    "there was not enough memory; lower --batch-size, --beam, --image-size or the widths of the model, and a "
    "training goes on from its last checkpoint with --resume"
)


class Stopped(Exception):  # noqa: N818
    """A command was stopped by a signal.

    Attributes:
        interrupt: What Python made of the signal.
    """

    def __init__(self, interrupt: KeyboardInterrupt) -> None:
        super().__init__(str(interrupt))
        self.interrupt = interrupt


class _Stderr(logging.Handler):
    """Print messages to what is standard error at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(printable(self.format(record)) + "\n")


def print_log() -> None:
    """Print what the library notes as plain lines; a second call changes nothing."""
    logger.setLevel(logging.INFO)
    if not any(isinstance(handler, _Stderr) for handler in logger.handlers):
        logger.addHandler(_Stderr())


def import_commands() -> None:
    """Import what all commands need; what is not installed is for ``main`` to say."""
    try:
        import sightline.cli.app  # noqa: F401, PLC0415
    except ImportError:
        return


def main(args: list[str] | None = None) -> None:
    """Run ``sightline``. What a user gets wrong is answered by one sentence and exit code 2."""
    # An image between the library's limit and twice that is refused by a sentence of ours, said once.
    warnings.filterwarnings("ignore", message="Image size .* could be decompression bomb")
    try:
        from sightline.cli.app import app  # noqa: PLC0415  typer is an extra
        from sightline.cli.several import run_command  # noqa: PLC0415

        print_log()
        run_command(app(), args)
    except Stopped as stopped:
        _stop(stopped.interrupt, sys.argv[1:] if args is None else args)
    except KeyboardInterrupt as interrupt:  # while a command is imported: nothing was begun
        _stop(interrupt, [])
    except ImportError as missing:
        package = (missing.name or "").partition(".")[0]
        if "pip install 'sightline[" in str(missing):  # a sentence already
            _refuse(str(missing))
        if package not in _EXTRAS:
            raise
        _refuse(f"the command line needs {package}, which is not installed; pip install 'sightline[cli]'")
    except (ValueError, TypeError) as problem:
        _refuse(str(problem))
    except OSError as problem:
        _refuse(_system_sentence(problem))
    except (MemoryError, RuntimeError) as problem:
        if not _is_out_of_memory(problem):
            raise
        _refuse(_OUT_OF_MEMORY)


def _stop(stopped: KeyboardInterrupt, args: list[str]) -> None:
    """Say where a training stands and how to go on; exit as a program does that a signal ended."""
    number = getattr(stopped, "number", signal.SIGINT)
    if str(stopped):
        from sightline.cli.next_steps import program  # noqa: PLC0415

        again = [*args, *([] if "--resume" in args else ["--resume"])]
        _end(f"{stopped}; go on with\n  {program()} {shlex.join(again)}\n", 128 + number)
    sys.exit(128 + number)


def _is_out_of_memory(problem: Exception) -> bool:
    """Whether memory ended, of the machine or of a GPU: torch has no one name for it."""
    text = str(problem)
    return isinstance(problem, MemoryError) or "out of memory" in text or "can't allocate memory" in text


def _system_sentence(problem: OSError) -> str:
    """What the system refused, as a sentence; one of ours is a sentence already."""
    if not problem.strerror:
        return str(problem)
    of = f"{str(problem.filename)!r}: " if problem.filename is not None else ""
    return f"the system refused {of}{problem.strerror.lower()}; try another file or folder"


def _refuse(sentence: str) -> None:
    from sightline.messages import printable  # noqa: PLC0415

    _end(printable(" ".join(sentence.split())) + "\n", 2)


def _end(text: str, code: int) -> None:
    """Write last words and exit."""
    from sightline.cli.several import write_last_words  # noqa: PLC0415

    write_last_words(text)
    sys.exit(code)
