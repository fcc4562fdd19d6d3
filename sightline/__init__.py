"""Sightline: attention, from the equation to the trained model, and a line of sight into any of them.

import sightline as sl

sl.reference.scaled_dot_product_attention(q, k, v, mask)   # the equation, with its weights
sl.attention(q, k, v, sl.masks.causal())                   # the same output, by the fastest exact way
sl.nn.TransformerEncoderLayer(512, 8)                      # torch's layers, drop-in
sl.look(q, k, v).entropy                                   # what it attended to, without the matrix
with sl.watch(model) as seen: model(x)                     # the same of any model
sl.open_run("runs/demo").predict(["a.jpg"])                # trained by ``sightline train``

Names are imported when they are first asked for: ``sightline --help`` does not wait for PyTorch, and the
mechanism does not need what the models do.
"""

import importlib
import sys
from types import ModuleType

TYPE_CHECKING = False  # of ``typing``, without importing it: a command is quick, and quick to be stopped
if TYPE_CHECKING:
    from typing import Any

    from sightline import models, show, tasks, textbook, train
    from sightline.public import (
        Look,
        Mask,
        Monitor,
        Sight,
        align,
        attention,
        edit,
        look,
        masks,
        nn,
        positions,
        reference,
        scores,
        watch,
    )
    from sightline.tasks.run import open_run
else:
    Any = object

__version__ = "0.1.0"
__all__ = [
    "Look",
    "Mask",
    "Monitor",
    "Sight",
    "align",
    "attention",
    "edit",
    "look",
    "masks",
    "models",
    "nn",
    "open_run",
    "positions",
    "reference",
    "scores",
    "show",
    "tasks",
    "textbook",
    "train",
    "watch",
]


_FORMER = {"seeds": "textbook", "Seen": "look.recording.Recording"}  # names of releases before 0.5


def __getattr__(name: str) -> Any:
    if name not in __all__:
        former = f", it was renamed sightline.{_FORMER[name]}" if name in _FORMER else ""
        raise AttributeError(f"module 'sightline' has no attribute {name!r}{former}")
    globals()[name] = found = _load(name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _load(name: str) -> Any:
    """Import what a public name stands for: the mechanism and the look at once, the rest one by one."""
    if name in {"models", "textbook", "show", "tasks", "train"}:
        return importlib.import_module(f"sightline.{name}")
    if name in {"attention", "open_run"}:
        room = "attention.attend" if name == "attention" else "tasks"
        return getattr(importlib.import_module(f"sightline.{room}"), name)
    import sightline.public  # noqa: PLC0415
    from sightline.look.notebook import set_renderer  # noqa: PLC0415

    set_renderer(_live_views)
    return getattr(sightline.public, name)


def _live_views(shown: Any) -> Any:
    """What was seen as views in a notebook; None where what draws them is not installed."""
    try:
        from sightline.show.explorer.widget import live_views  # noqa: PLC0415
    except ImportError:
        return None
    return live_views(shown)


class _FrontDoor(ModuleType):
    """Keep the names of functions: the import system would put a package of the same name in their place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FUNCTIONS and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


_FUNCTIONS = frozenset({"attention", "edit", "watch"})
sys.modules[__name__].__class__ = _FrontDoor
