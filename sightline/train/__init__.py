"""One loop for every model, on Accelerate, that can be killed and goes on to the bit.

fit(model, objective, TrainConfig(epochs=20), Path("runs/mine"))

Names are imported when they are first asked for: a command learns from ``launch.py`` whether a launcher
started it without waiting for PyTorch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sightline.train.config import TrainConfig
    from sightline.train.loop import fit
    from sightline.train.objective import Loss, Objective, Stage

__all__ = ["Loss", "Objective", "Stage", "TrainConfig", "fit"]

_HOME = {"TrainConfig": "config", "fit": "loop"}  # the others: objective


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOME.get(name, 'objective')}")
    globals()[name] = found = getattr(module, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
