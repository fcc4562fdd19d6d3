"""What is wrong with data, kind by kind, as ``sightline data check`` prints it."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

__all__ = ["print_problems"]

_SHOWN = 5  # problems of a kind that are listed; --json lists all


def print_problems(console: Console, problems: Mapping[str, Sequence[str]], kinds: Mapping[str, str]) -> None:
    """The first sentences of every kind of problem, under what the kind is; or that there is none."""
    for kind, sentences in problems.items():
        console.print(Text(f"{kind} ({len(sentences):,}): {kinds.get(kind, kind)}", style="bold"))
        for sentence in sentences[:_SHOWN]:
            console.print(Text(f"  {sentence}"))
        if len(sentences) > _SHOWN:
            console.print(Text(f"  and {len(sentences) - _SHOWN:,} more; --json lists all"))
    if not problems:
        console.print(Text("no problem found"))
