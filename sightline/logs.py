"""What the library says, through :mod:`logging`; the command line prints it to standard error."""

import logging
import sys

from sightline.messages import printable

__all__ = ["logger", "print_to_stderr"]

logger = logging.getLogger("sightline")


class _Stderr(logging.Handler):
    """Prints messages to whatever standard error is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(printable(self.format(record)) + "\n")


def print_to_stderr() -> None:
    """Print what the library says as plain lines; twice is as good as once."""
    logger.setLevel(logging.INFO)
    if not any(isinstance(handler, _Stderr) for handler in logger.handlers):
        logger.addHandler(_Stderr())
