"""What an exercise is: a file to fill in, calls to make, and mistakes that are known."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

__all__ = ["Exercise", "Mistake", "Probe", "handout"]

_BEGIN, _END = "# solution", "# end"


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """One call whose answer is compared.

    Attributes:
        name: Of the function or class.
        args: What it is called with.
        init: For a class, what an object is made with first.
        method: Of the object; empty where it is called itself.
        seed: For torch's random numbers, set before.
        draw: The shape of a first argument that is drawn after the seed is set, as a homework draws it.
        about: What is special about the input, for the message: "with scores near 1000".
    """

    name: str
    args: tuple[Any, ...] = ()
    init: tuple[Any, ...] | None = None
    method: str = ""
    seed: int | None = None
    draw: tuple[int, ...] = ()
    about: str = ""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A known wrong way: where an answer is the one that it gives, its sentence is the hint.

    Attributes:
        hint: What to think about; it does not give the solution away.
        names: The functions or classes as this mistake writes them.
    """

    hint: str
    names: Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Exercise:
    """An exercise of the course.

    Attributes:
        number: Of its chapter.
        title: In a few words.
        key: The module that solves it; between its marks it is cut for the student.
        probes: The calls, made when they are needed.
        mistakes: Known ones, the most telling first.
        parts: The names of what a function returns, where it returns several.
        tolerance: By which a number may differ.
    """

    number: int
    title: str
    key: ModuleType
    probes: Callable[[], list[Probe]]
    mistakes: tuple[Mistake, ...] = ()
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tolerance: float = 1e-4

    @property
    def names(self) -> dict[str, Any]:
        """The key's functions and classes."""
        return dict(vars(self.key))


def handout(source: str, number: int) -> str:
    r"""The file to fill in: the key's without what is between its marks.

    Example:
        >>> print(handout("def one():\n    # solution\n    return 1\n    # end\n", 7))
        # Check it with: sightline exercise check 7 exercise_7.py
        <BLANKLINE>
        def one():
            raise NotImplementedError  # your code here
        <BLANKLINE>
    """
    kept, hidden = [], False
    for line in source.splitlines():
        if line.strip() == _BEGIN:
            hidden = True
            kept.append(f"{line[: -len(_BEGIN)]}raise NotImplementedError  # your code here")
        elif line.strip() == _END:
            hidden = False
        elif not hidden:
            kept.append(line.partition("  # noqa")[0])
    head = f"# Check it with: sightline exercise check {number} exercise_{number}.py\n\n"
    return head + "\n".join(kept) + "\n"
