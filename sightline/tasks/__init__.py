"""What Sightline learns: tasks, runs that open, and one way to train them.

run = sl.tasks.train("classify", data="digits", out="runs/digits", epochs=3)
sl.tasks.register(SORT)                # a task of your own: every command and open_run know it from now on

The names of the tasks are light; the other names import PyTorch when they are first asked for.
"""

from typing import TYPE_CHECKING, Any

from sightline.tasks.registry import kinds, register, summary, task_of, unregister

if TYPE_CHECKING:
    from sightline.tasks.public import (
        TRAINING,
        Alternative,
        Attention,
        DatasetObjective,
        Evaluation,
        Example,
        Grid,
        MemoryDataset,
        Part,
        Prediction,
        Predictor,
        Prepared,
        Preset,
        Run,
        SaveableModel,
        Scores,
        Settings,
        Task,
        open_run,
        train,
    )

__all__ = [
    "TRAINING",
    "Alternative",
    "Attention",
    "DatasetObjective",
    "Evaluation",
    "Example",
    "Grid",
    "MemoryDataset",
    "Part",
    "Prediction",
    "Predictor",
    "Prepared",
    "Preset",
    "Run",
    "SaveableModel",
    "Scores",
    "Settings",
    "Task",
    "kinds",
    "open_run",
    "register",
    "summary",
    "task_of",
    "train",
    "unregister",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sightline.tasks' has no attribute {name!r}")
    from sightline.tasks import public  # noqa: PLC0415

    return getattr(public, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
