"""Ctrl-C and SIGTERM: the step under way is finished and saved, then the training stops."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from sightline.logs import logger

__all__ = ["Interrupt", "Interrupted", "interruptible"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A training was stopped by a signal, after everything was saved.

    Attributes:
        step, total: Steps done, and of how many.
        number: The signal.
    """

    def __init__(self, step: int, total: int, number: int) -> None:
        super().__init__(f"stopped after step {step:,} of {total:,}; everything is saved")
        self.step, self.total, self.number = step, total, number


class Interrupt:
    """Whether a signal has come."""

    def __init__(self) -> None:
        self.number: int | None = None

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Note the first signal; the second one stops at once, as if nobody listened."""
        if self.number is not None:
            signal.default_int_handler(number, frame)
        self.number = number
        logger.info("stopping after this step; once more stops at once")


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Listen for signals in this block; outside the main thread, where nobody can, none ever comes."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {number: signal.signal(number, interrupt.receive) for number in _SIGNALS}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
