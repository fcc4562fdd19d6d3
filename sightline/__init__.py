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

    from sightline import models, nn, positions, show, tasks, textbook, train
    from sightline.attention import masks, reference, scores
    from sightline.attention.attend import attention
    from sightline.attention.masks import Mask
    from sightline.edit.edit import edit
    from sightline.look.align import align
    from sightline.look.divergence import divergence
    from sightline.look.look import look
    from sightline.look.sight import Look, Sight
    from sightline.tasks.run import open_run
    from sightline.watch.monitor import Monitor
    from sightline.watch.watch import watch
else:
    Any = object

__version__ = "0.1.0"

__all__ = [
    "Look",
    "Mask",
    "Measure",
    "Monitor",
    "Sight",
    "align",
    "attention",
    "divergence",
    "edit",
    "look",
    "masks",
    "measures",
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

# Where names live that are no modules of their own: a module, or a name in a module.
_HOME = {
    "Look": "look.request:Look",
    "Mask": "attention.masks:Mask",
    "Measure": "look.measure:Measure",
    "Monitor": "watch.monitor:Monitor",
    "Sight": "look.sight:Sight",
    "align": "look.align:align",
    "attention": "attention.attend:attention",
    "divergence": "look.divergence:divergence",
    "edit": "edit.edit:edit",
    "masks": "attention.masks",
    "measures": "look.measures",
    "open_run": "tasks.run:open_run",
    "reference": "attention.reference",
    "scores": "attention.scores",
    "watch": "watch.watch:watch",
}
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
    """Import what a public name stands for; from then on notebooks show sights as views."""
    from sightline.look.notebook import set_renderer  # noqa: PLC0415

    set_renderer(_live_views)
    home, _, attribute = _HOME.get(name, name).partition(":")
    module = importlib.import_module(f"sightline.{home}")
    return getattr(module, attribute) if attribute else module


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
