"""Waiting in tests: long, for a machine that has much to do."""

import time

__all__ = ["until"]


def until(happened):
    """Wait for something that another thread or process does."""
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.001)
