"""The facts of the zoo that are written down, and how they are compared."""

import json
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden" / "zoo.json"


def read():
    """Entry -> property -> facts."""
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


def differences(found, expected, place=""):
    """A line for each fact that differs; an error may be up to ten times the one that is written down."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in sorted({*found, *expected}):
            if key not in found or key not in expected:
                yield f"{place}/{key}: {'gone' if key in expected else 'new'}"
            else:
                yield from differences(found[key], expected[key], f"{place}/{key}")
    elif isinstance(found, float) and isinstance(expected, float):
        if found > 10.001 * expected:
            yield f"{place}: {expected} -> {found}"
    elif found != expected:
        yield f"{place}: {expected} -> {found}"
