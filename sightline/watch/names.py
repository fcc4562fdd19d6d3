"""Patterns that name layers."""

import fnmatch
from collections.abc import Callable

__all__ = ["matches", "name_filter"]


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern fits a dotted name, or is a part of it.

    Example:
        >>> matches("encoder.layer.3.self", "layer.3"), matches("encoder.layer.31.self", "*.3.*")
        (True, False)
    """
    return fnmatch.fnmatchcase(name, pattern) or f".{pattern}." in f".{name}."


def name_filter(layers: str | Callable[[str], bool] | None) -> Callable[[str], bool]:
    """Which names are chosen: all, those that fit a pattern, or those that a function says."""
    if layers is None:
        return lambda _name: True
    if isinstance(layers, str):
        return lambda name: fnmatch.fnmatchcase(name, layers)
    if callable(layers):
        return layers
    raise TypeError(f"layers must be a pattern or a function of a module's name, got {type(layers).__name__}")
