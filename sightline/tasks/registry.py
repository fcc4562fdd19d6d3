"""The tasks there are: one line each.

A task is loaded when it is needed, so that naming the commands does not import PyTorch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sightline.messages import did_you_mean, format_value

if TYPE_CHECKING:
    from sightline.tasks.task import Task

__all__ = ["kinds", "register", "summary", "task_of", "unregister"]


@dataclass(frozen=True)
class _Entry:
    summary: str
    load: Callable[[], "Task"]


def _caption() -> "Task":
    from sightline.tasks.caption import CAPTION  # noqa: PLC0415

    return CAPTION


def _translate() -> "Task":
    from sightline.tasks.translate import TRANSLATE  # noqa: PLC0415

    return TRANSLATE


def _classify() -> "Task":
    from sightline.tasks.classify import CLASSIFY  # noqa: PLC0415

    return CLASSIFY


_ENTRIES: dict[str, _Entry] = {
    "caption": _Entry("Describe images in words.", _caption),
    "translate": _Entry("Translate sentences.", _translate),
    "classify": _Entry("Tell which class an image is of.", _classify),
}
_BUILT_IN = frozenset(_ENTRIES)


def register(new: "Task") -> "Task":
    """Make a task known to every command and to ``open_run``, in place of one of yours by that name.

    Raises:
        ValueError: If its name is that of a task of Sightline's own.

    Example:
        >>> register(task_of("caption"))
        Traceback (most recent call last):
        ValueError: a task's kind must be its own, 'caption' is taken; choose another name
    """
    from sightline.tasks.task import Task  # noqa: PLC0415 - known names are listed without loading torch

    if not isinstance(new, Task):
        raise TypeError(f"a task must be a sl.tasks.Task, got {format_value(new)}")
    if new.kind in _BUILT_IN:
        raise ValueError(f"a task's kind must be its own, {new.kind!r} is taken; choose another name")
    _ENTRIES[new.kind] = _Entry(new.summary, lambda: new)
    return new


def unregister(kind: str) -> None:
    """Forget a task of your own.

    Example:
        >>> unregister("nobody registered this")
    """
    if kind not in _BUILT_IN:
        _ENTRIES.pop(kind, None)


def kinds() -> tuple[str, ...]:
    """The names of all tasks.

    Example:
        >>> kinds()[:3]
        ('caption', 'translate', 'classify')
    """
    return tuple(_ENTRIES)


def summary(kind: str) -> str:
    """What a task does, in a line; without loading it.

    Example:
        >>> summary("classify")
        'Tell which class an image is of.'
    """
    _check_known(kind)
    return _ENTRIES[kind].summary


def task_of(kind: str) -> "Task":
    """The task of a name.

    Raises:
        ValueError: If there is none.

    Example:
        >>> task_of("classify").kind
        'classify'
    """
    _check_known(kind)
    return _ENTRIES[kind].load()


def _check_known(kind: str) -> None:
    if kind not in _ENTRIES:
        raise ValueError(f"unknown kind of task {kind!r}, {did_you_mean(kind, _ENTRIES)}")
