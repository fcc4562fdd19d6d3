"""Which layers a pattern of the command line means."""

import fnmatch


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern fits a dotted name, or is a part of it: 'layer.3' of 'encoder.layer.3.self'."""
    return fnmatch.fnmatchcase(name, pattern) or f".{pattern}." in f".{name}."
