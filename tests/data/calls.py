"""How much work a function does, in calls: the same on every machine, however busy."""

import sys
from collections import Counter

__all__ = ["calls"]


def calls(function):
    """What a function gives, and how often it and all below it call what, by name, C's functions too."""
    counts = Counter()

    def note(frame, event, argument):
        if event == "call":
            counts[frame.f_code.co_name] += 1
        elif event == "c_call":
            counts[argument.__name__] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = function()
    finally:
        sys.setprofile(before)
    return result, counts
