"""``sightline exercise``: the course's exercises, handed out and graded."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sightline.cli.app import make_command
from sightline.cli.outputs import check_place, print_line, print_paths, save_text
from sightline.exercises import EXERCISES, SECONDS, Verdict, file_of, grade

__all__ = ["command"]

_USES = "sightline exercise, sightline exercise 3, or sightline exercise check 3 exercise_3.py"
_SHOWN_LINES = 20  # of what a file prints


def exercise(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="A number hands out that exercise; check NUMBER FILE grades a file; nothing lists them all.",
            metavar="NUMBER | check NUMBER FILE",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the exercise is written; default: exercise_NUMBER.py.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long a file may run.")] = SECONDS,
) -> None:
    """Hand out and grade the exercises of the course, one for each chapter.

    A file that is graded runs in a process of its own, with little memory and time. The exit code is 0 if all
    checks pass, and 1 if not yet.
    """
    match what or []:
        case []:
            for number in sorted(EXERCISES):
                print_line(f"{number:3d}  {EXERCISES[number].title}")
            print_line("sightline exercise 1 hands out the first", err=True)
        case [number]:
            _hand_out(_number(number), out)
        case ["check", number, file]:
            _check(_number(number), Path(file), seconds)
        case _:
            raise ValueError(f"an exercise is asked for as {_USES}, got {' '.join(what or [])!r}")


def _number(text: str) -> int:
    if text.isdecimal() and int(text) in EXERCISES:
        return int(text)
    raise ValueError(f"exercises have the numbers 1 to {max(EXERCISES)}, got {text!r}; the ways are {_USES}")


def _hand_out(number: int, out: Path | None) -> None:
    path = out or Path(f"exercise_{number}.py")
    if path.exists():
        raise ValueError(f"{str(path)!r} is there already, and may be your work; name another file by --out")
    check_place(path)
    text = file_of(number).replace(f"exercise_{number}.py", path.name, 1)
    save_text(text, path)
    print_paths([path])
    print_line(f"fill it in, then: sightline exercise check {number} {path}", err=True)


def _check(number: int, path: Path, seconds: float) -> None:
    if not 0 < seconds <= 3600:
        raise ValueError(f"--seconds must be above 0 and at most 3600, got {seconds:g}")
    verdict = grade(EXERCISES[number], path, seconds=seconds)
    if verdict.printed.strip():
        print_line("your file printed:", err=True)
        for line in verdict.printed.splitlines()[:_SHOWN_LINES]:
            print_line(f"  {line}", err=True)
    print_line(_sentence(number, verdict))
    if not verdict.is_passed:
        raise typer.Exit(1)


def _sentence(number: int, verdict: Verdict) -> str:
    if verdict.is_passed:
        next_one = f"; the next is sightline exercise {number + 1}" if number + 1 in EXERCISES else ""
        return f"exercise {number}: all {verdict.n_checks} checks pass{next_one}"
    lines = [
        f"exercise {number}: {verdict.n_passed} of {verdict.n_checks} checks pass, then",
        verdict.problem,
    ]
    return "\n  ".join([*lines, *([f"hint: {verdict.hint}"] if verdict.hint else [])])


def command() -> Any:
    """``sightline exercise``."""
    return make_command(exercise, name="exercise")
