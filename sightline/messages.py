"""The sentences that answer what a user gets wrong. The command line starts with it: nothing heavy here."""

import difflib
from collections.abc import Iterable, Sequence

__all__ = ["did_you_mean", "flag", "listing"]


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
