"""Signals in tests that send them: as in a process that was started in the foreground."""

import contextlib
import signal

__all__ = ["own_signals"]

_FOREGROUND = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


@contextlib.contextmanager
def own_signals():
    """Hear Ctrl-C and SIGTERM in this process and in those that it starts, whatever it inherited.

    In the background of a script, and where `make test &` runs, SIGINT is ignored.
    """
    before = {number: signal.signal(number, handler) for number, handler in _FOREGROUND.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
