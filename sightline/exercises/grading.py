"""Grades a student's file: the answers come from a child process, the comparison is made here."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from sightline.border import read_bytes
from sightline.exercises.child import decoded, perform
from sightline.exercises.comparing import difference, is_same, shown
from sightline.exercises.exercise import Exercise, Probe
from sightline.exercises.sandbox import Outcome, run_file

__all__ = ["SECONDS", "Verdict", "grade"]

SECONDS = 20.0
_LARGEST_FILE = 1 << 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the grader says.

    Attributes:
        n_passed: Checks that passed before the first that did not.
        n_checks: All checks.
        problem: What is wrong with the first that did not pass; empty if all passed.
        hint: What it may come from; empty if unknown.
        printed: The beginning of what the file printed.
    """

    n_passed: int
    n_checks: int
    problem: str = ""
    hint: str = ""
    printed: str = ""

    @property
    def is_passed(self) -> bool:
        """Whether every check passed."""
        return self.n_passed == self.n_checks


def grade(exercise: Exercise, path: Path, *, seconds: float = SECONDS) -> Verdict:
    """Grade a file. It runs in a child process, and the answers are compared with the key's in this one.

    Raises:
        ValueError: If the file is not text, or too large for an exercise.
        OSError: If it can't be read.
    """
    try:
        source = read_bytes(path, at_most=_LARGEST_FILE).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"an exercise is a text file in UTF-8, {str(path)!r} is not") from None
    probes = exercise.probes()
    outcome = run_file(source, str(path), probes, seconds=seconds)
    for n, probe in enumerate(probes):
        problem, hint = _judged(exercise, probe, outcome, n, source, seconds)
        if problem:
            return Verdict(n, len(probes), problem, hint, outcome.printed)
    return Verdict(len(probes), len(probes), printed=outcome.printed)


def _judged(
    exercise: Exercise, probe: Probe, outcome: Outcome, n: int, source: str, seconds: float
) -> tuple[str, str]:
    """The problem of one probe and a hint; both empty if its answer is right."""
    call = _call(probe)
    if n >= len(outcome.lines):
        return _ended(outcome, call, seconds)
    line = outcome.lines[n]
    if "missing" in line:
        return f"the file has no {probe.name!r}", "keep the names of the file that was handed out"
    if "answer" not in line:
        return _raised(line, call, source)
    try:
        answer = decoded(line["answer"])
    except (ValueError, TypeError, KeyError, RuntimeError, AttributeError):
        return f"{call}: the answer could not be read", "return tensors, numbers or lists of them"
    expected = _perform(exercise.names, probe)
    problem = difference(expected, answer, exercise.parts.get(probe.name, ()), exercise.tolerance)
    if not problem:
        return "", ""
    return f"{call}: {problem}", _hint(exercise, probe, answer)


def _perform(names: Mapping[str, Any], probe: Probe) -> Any:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        return perform(dict(names), asdict(probe))


def _hint(exercise: Exercise, probe: Probe, answer: Any) -> str:
    """The sentence of the first known mistake that gives the same answer."""
    for mistake in exercise.mistakes:
        try:
            wrong = _perform(exercise.names | dict(mistake.names), probe)
        except (ValueError, TypeError, RuntimeError, ArithmeticError, IndexError):
            continue
        if probe.name in mistake.names and is_same(wrong, answer, exercise.tolerance):
            return mistake.hint
    return ""


def _ended(outcome: Outcome, call: str, seconds: float) -> tuple[str, str]:
    if outcome.is_late:
        return (
            f"{call}: no answer after {seconds:g} seconds, so it was stopped",
            "is there a loop that never ends? These inputs take a few thousandths of a second",
        )
    return (
        f"{call}: the file ended its process before it answered",
        "it may have called os._exit, or taken more memory than there is",
    )


_SHAPES = (
    "the shapes do not fit: print(x.shape) shows one, x[:, None] adds an axis of size 1, x.transpose(-2, -1) "
    "swaps the last two"
)
_SAID = {  # in torch's and Python's messages
    "must match": _SHAPES,
    "cannot be multiplied": _SHAPES,
    "Expected size for first two dimensions": _SHAPES,
    "size mismatch": _SHAPES,
    "can't multiply sequence": "a list is not multiplied number by number: go over its numbers",
    "operator.invert": "~ turns True and False alone; mask == 0 does it for 1.0 and 0.0, too",
}
_HINTS = {
    "MemoryError": "it asked for more memory than the grader gives; what is the shape of what you build?",
    "SystemExit": "a function returns its result; sys.exit and exit end the whole program",
    "IndentationError": "every line of a function begins with the same number of spaces",
    "OverflowError": "a number grew too large: subtract the largest score from all of them first",
    "ModuleNotFoundError": "math and torch are enough",
    "ZeroDivisionError": "it divides by zero: a sum of scores can be 0, a sum of their exps can't",
}


def _raised(line: dict[str, Any], call: str, source: str) -> tuple[str, str]:
    """A sentence about an exception, with the line of the file that it came from."""
    error, message, number = (
        str(line.get("error"))[:80],
        " ".join(str(line.get("message")).split())[:240],
        line.get("line"),
    )
    lines = source.splitlines()
    known = isinstance(number, int) and 0 < number <= len(lines)
    where = f", at line {number}: {lines[number - 1].strip()[:100]}" if known and number else ""
    if error == "NotImplementedError":
        return f"{call.partition('(')[0]} is not written yet{where}", "put your code in place of that line"
    if "can't allocate memory" in message or "not enough memory" in message:
        error, message = "MemoryError", "there was not enough memory"
    by_message = [hint for words, hint in _SAID.items() if words in message]
    hint = by_message[0] if by_message else _HINTS.get(error, "")
    before = "" if error in {"SyntaxError", "IndentationError"} else f"{call}: "
    return f"{before}{error}{f', {message}' if message else ''}{where}", hint


def _call(probe: Probe) -> str:
    """A probe as a student would write it: ``softmax([1.0, 2.0])``."""
    called = probe.name
    if probe.init is not None:
        called += f"({', '.join(map(shown, probe.init))})"
    if probe.method:
        called += f".{probe.method}"
    drawn = [f"torch.rand{probe.draw}"] if probe.draw else []
    written = f"{called}({', '.join([*drawn, *map(shown, probe.args)])})"
    return f"{written} {probe.about}" if probe.about else written
