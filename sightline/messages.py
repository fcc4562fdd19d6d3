"""The sentences that answer what a user gets wrong, and the checks that raise them.

The command line starts with this module: it imports nothing heavy.
"""

import difflib
import logging
import math
import numbers
import re
import shlex
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = [
    "Limit",
    "check_bool",
    "check_choice",
    "check_integer",
    "check_limits",
    "check_number",
    "did_you_mean",
    "flag",
    "format_value",
    "listing",
    "logger",
    "printable",
    "quoted",
    "shortened",
    "warn_caller",
]

logger = logging.getLogger(
    "sightline"
)  # what the library notes; the command line prints it to standard error

Limit = int | float  # run-time checks of annotations do not take an int for a float

# What a terminal obeys instead of showing it: controls, and marks that turn the direction of a line.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST = 80  # letters of a value in a sentence
_LARGEST = (1 << 63) - 1  # what torch and numpy hold
_PLAIN = str | bytes | int | float | complex | slice | range | None


def check_bool(name: str, value: object) -> None:
    """Refuse what is neither True nor False: a text would count as True."""
    if type(value).__name__ not in {"bool", "bool_"}:  # numpy's count too
        raise TypeError(f"{name} must be True or False, got {format_value(value)}")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a name that is not one of the choices.

    Example:
        >>> check_choice("reduce", "men", ("sum", "mean"))
        Traceback (most recent call last):
        ValueError: unknown reduce 'men', expected one of 'mean', 'sum'; did you mean 'mean'?
    """
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"unknown {name} {format_value(value)}, {did_you_mean(value, choices)}")


def check_integer(name: str, value: Any, **limits: Limit) -> None:
    """Refuse what is not a whole number, and one outside the limits, those of :func:`check_limits`.

    Example:
        >>> check_integer("n", "3", at_least=1)
        Traceback (most recent call last):
        TypeError: n must be a whole number, got '3'
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, got {format_value(value)}")
    check_limits(name, value, **limits)


def check_number(name: str, value: Any, **limits: Limit) -> None:
    """Refuse what is not a finite number, and one outside the limits, those of :func:`check_limits`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {format_value(value)}")
    check_limits(name, value, **limits)


def check_limits(
    name: str,
    value: Any,
    *,
    at_least: Limit | None = None,
    above: Limit | None = None,
    at_most: Limit | None = None,
    below: Limit | None = None,
) -> None:
    """Refuse a number outside the limits, or one that is infinite, NaN or longer than 64 bits.

    Example:
        >>> check_limits("dropout", 1.5, at_least=0, below=1)
        Traceback (most recent call last):
        ValueError: dropout must be at least 0 and below 1, got 1.5
    """
    if isinstance(value, numbers.Integral) and abs(int(value)) > _LARGEST:
        raise ValueError(f"{name} must be a number of 64 bits, got {shortened(int(value))}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {float(value)}")
    fits = (
        (at_least is None or value >= at_least)
        and (above is None or value > above)
        and (at_most is None or value <= at_most)
        and (below is None or value < below)
    )
    if not fits:
        limits = {"at least": at_least, "above": above, "at most": at_most, "below": below}
        bounds = [f"{words} {limit}" for words, limit in limits.items() if limit is not None]
        rule = "a positive number" if bounds == ["above 0"] else " and ".join(bounds)
        raise ValueError(f"{name} must be {rule}, got {shortened(value)}")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """End a sentence about an unknown name: what is known, and the nearest of it.

    Example:
        >>> did_you_mean("dott", ["dot", "cosine"])
        "expected one of 'cosine', 'dot'; did you mean 'dot'?"
    """
    names = sorted(known)
    listed = f"expected one of {', '.join(map(repr, names))}"
    near = difflib.get_close_matches(str(name), names, n=1)
    return f"{listed}; did you mean {near[0]!r}?" if near else listed


def flag(name: str) -> str:
    """The flag of a setting.

    Example:
        >>> flag("max_tokens")
        '--max-tokens'
    """
    return f"--{name.replace('_', '-')}"


def format_value(value: Any) -> str:
    """Write a value for a sentence: plain ones as Python does, tensors by their shape, others by their type.

    Example:
        >>> format_value("3"), format_value([1, 2]), format_value([object()]), format_value(dict)
        ("'3'", '[1, 2]', 'a list of object', 'the class dict')
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"a {type(value).__name__} of shape {tuple(value.shape)} and {value.dtype}"
    if isinstance(value, list | tuple) and not all(isinstance(x, _PLAIN) for x in value):
        return f"a {type(value).__name__} of {listing(sorted({type(x).__name__ for x in value}))}"
    if isinstance(value, _PLAIN | list | tuple):
        return shortened(value)
    return f"a {type(value).__name__}"


def listing(words: Sequence[str], joint: str = "and") -> str:
    """Words as a sentence lists them.

    Example:
        >>> listing(["caption", "translate", "classify"])
        'caption, translate and classify'
    """
    return ", ".join(words[:-1]) + f" {joint} " + words[-1] if len(words) > 1 else "".join(words)


def printable(text: object) -> str:
    r"""A text that a terminal shows and does not obey: what a file is called may hold its commands.

    Example:
        >>> printable("cat\x1b[2J.png")
        'cat\\x1b[2J.png'
    """
    return _OBEYED.sub(lambda sign: sign[0].encode("unicode_escape").decode("ascii"), str(text))


def quoted(text: object) -> str:
    """A text as one word of a shell's command, whatever it holds: a sentence may be pasted.

    Example:
        >>> quoted("my file.txt"), quoted("x; rm -r y")
        ("'my file.txt'", "'x; rm -r y'")
    """
    return shlex.quote(printable(text))


def shortened(value: Any) -> str:
    """A value as a sentence shows it: as Python writes it, its middle left out where it is long.

    Example:
        >>> shortened("x" * 200)
        "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'"
    """
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4 * _LONGEST:
        return f"a number of {value.bit_length()} bits"  # Python refuses to write the longest
    shown = repr(value)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST // 2]}...{shown[-_LONGEST // 2 + 2 :]}"


def warn_caller(sentence: str) -> None:
    """Warn, at the innermost line that is neither Sightline's nor PyTorch's."""
    frame, level = sys._getframe(1), 2  # noqa: SLF001 (the only way to the caller's frames)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in {"torch", "sightline"}:
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, UserWarning, stacklevel=level)
