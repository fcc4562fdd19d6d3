"""What Sightline learns: tasks, runs that open, and one way to train them.

``register``, ``kinds`` and ``task`` are light; the other names import PyTorch when they are first asked for.
"""

from typing import TYPE_CHECKING, Any

from sightline.tasks.registry import kinds, register, task

if TYPE_CHECKING:
    from sightline.tasks.public import (
        Alternative,
        Attention,
        Evaluation,
        Example,
        Grid,
        Part,
        Prediction,
        Prepared,
        Run,
        Settings,
        Task,
        open_run,
        train,
    )

__all__ = [
    "Alternative",
    "Attention",
    "Evaluation",
    "Example",
    "Grid",
    "Part",
    "Prediction",
    "Prepared",
    "Run",
    "Settings",
    "Task",
    "kinds",
    "open_run",
    "register",
    "task",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sightline.tasks' has no attribute {name!r}")
    from sightline.tasks import public  # noqa: PLC0415

    return getattr(public, name)
