"""The sentences that answer what a user gets wrong. The command line starts with it: nothing heavy here."""

import difflib
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["did_you_mean", "flag", "listing", "printable", "quoted", "shortened"]

# What a terminal obeys instead of showing it: controls, and marks that turn the direction of a line.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST = 80  # letters of a value in a sentence


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
