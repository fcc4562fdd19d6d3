"""Ctrl-C and SIGTERM: the step under way is finished and saved, then the training stops.

Of several processes each may be told at another step, or not at all: all stop after the same one.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from torch import Tensor

from sightline.messages import logger
from sightline.train.launch import launched
from sightline.train.processes import any_process, is_main_process

__all__ = ["Interrupt", "Interrupted", "hear_signals", "interruptible"]

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
    """Whether a signal has come.

    Attributes:
        number: The signal, once this process has got one.
        agreed: The same, once all processes know of it.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.agreed: int | None = None
        self._before: Tensor | None = None

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Note the first signal; the second one stops at once, as if nobody listened.

        A launcher sends its own after the terminal's: of several processes none stops at the second.
        """
        if launched():
            if self.number is None and is_main_process():
                logger.info("stopping after this step")
        elif self.number is not None:
            signal.default_int_handler(number, frame)
        else:
            logger.info("stopping after this step; once more stops at once")
        self.number = self.number or number

    def agree(self, n_told: Tensor | None) -> None:
        """Learn from a step whether any process was told to stop.

        Args:
            n_told: How many were; on a GPU that of the step before is read, so that nobody waits for this
                one. None where this process is alone.
        """
        if n_told is None:
            self.agreed = self.number
            return
        known, self._before = (self._before, n_told) if n_told.is_cuda else (n_told, None)
        if known is not None and known.item() > 0:
            self.agreed = self.number or signal.SIGTERM

    def agree_now(self) -> None:
        """Ask all processes."""
        if any_process(self.number is not None):
            self.agreed = self.number or signal.SIGTERM


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Listen for signals in this block; outside the main thread, where nobody can, none ever comes."""
    interrupt = Interrupt()
    with hear_signals(interrupt.receive):
        yield interrupt


@contextmanager
def hear_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call a function at Ctrl-C and SIGTERM in this block; not outside the main thread, where Python can't.

    A signal that is ignored stays ignored: a shell script starts its background commands with SIGINT ignored,
    so that Ctrl-C ends the script and not them.

    Args:
        handler: Takes the number of the signal and the frame that it came in.
    """
    is_main = threading.current_thread() is threading.main_thread()
    numbers = [n for n in _SIGNALS if is_main and signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)
