"""Ctrl-C and SIGTERM, heard for the time of a block."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["hear_signals"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
