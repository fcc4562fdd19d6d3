"""Patterns that name layers."""

import fnmatch

__all__ = ["matches"]


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern fits a dotted name, or is a part of it.

    Example:
        >>> matches("encoder.layer.3.self", "layer.3"), matches("encoder.layer.31.self", "*.3.*")
        (True, False)
    """
    return fnmatch.fnmatchcase(name, pattern) or f".{pattern}." in f".{name}."
