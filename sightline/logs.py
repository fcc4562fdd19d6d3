"""What the library says while it works: the logger ``sightline``, silent until somebody listens.

A program that wants the lines installs a handler, as with any library; the command line calls
:func:`print_to_stderr`.
"""

import logging
import sys

__all__ = ["logger", "print_to_stderr"]

logger = logging.getLogger("sightline")
logger.addHandler(logging.NullHandler())


class _StandardError(logging.Handler):
    """Prints each message as a plain line, to what standard error is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(f"{self.format(record)}\n")


def print_to_stderr() -> None:
    """Print what the library says to standard error, a plain line each; a second call changes nothing."""
    if not any(isinstance(handler, _StandardError) for handler in logger.handlers):
        logger.addHandler(_StandardError())
    logger.setLevel(logging.INFO)
