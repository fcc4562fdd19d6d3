"""One valid call of every public function, class and method: what the fuzzer of arguments starts from.

A call is a name, what is called, and its arguments by name. A test holds the table against the package's own
lists of names, so that a new one is fuzzed from its first day.
"""

import dataclasses
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import sightline as sl
from workshop.fuzz.public_call import Call
from workshop.fuzz.public_mechanism import look_calls, mechanism_calls, position_calls, seed_calls
from workshop.fuzz.public_models import model_calls, show_calls, task_calls

ROOMS = ("masks", "models", "positions", "scores", "seeds", "show", "tasks", "train")
METHODS = {
    "Sight": (
        "map",
        "rows",
        "top",
        "mass",
        "columns",
        "received_from",
        "offsets",
        "__getitem__",
        "to",
        "save",
        "load",
    ),
    "Recording": ("__getitem__", "calls", "stack", "runs", "save", "load"),
    "SightDifference": ("map", "rows"),
    "Mask": ("dense", "__and__"),
    "Run": ("predict", "evaluate", "watch", "layers", "steps", "dataset"),
    "Attention": ("select",),
    "Page": ("save",),
}
# Names that are no door for a user's values: protocols, what the package hands out, torch's own classes.
APART = {
    "Sight": "made by sl.look",
    "masks.Band": "a part of a Mask",
    "Mask": "made by sl.masks",
    "masks.Mask": "made by sl.masks",
    "positions.POSITIONS": "a tuple of names",
    "scores.Score": "abstract",
    "scores.Dot": "takes nothing",
    "scores.ScaledDot": "takes nothing",
    "scores.Cosine": "takes nothing",
    "show.pages": "a module; its functions take what runs hand out",
    "show.Page": "made by show.page",
    "tasks.TRAINING": "a record",
    "tasks.Preset": "an alias",
    "tasks.SaveableModel": "a protocol",
    "tasks.Predictor": "a base class for tasks of one's own",
    "tasks.DatasetObjective": "a base class for tasks of one's own",
    "tasks.Part": "a record that tasks of one's own are made of",
    "tasks.Prepared": "a record that tasks of one's own are made of",
    "tasks.Task": "a record that tasks of one's own are made of",
    "tasks.MemoryDataset": "a record that tasks of one's own are made of",
    "tasks.Settings": "made by the package",
    "tasks.Run": "made by open_run",
    "tasks.Alternative": "handed out",
    "tasks.Evaluation": "handed out",
    "tasks.Example": "handed out",
    "tasks.Prediction": "handed out",
    "tasks.Scores": "handed out",
    "tasks.kinds": "takes nothing",
    "train.Loss": "a record that objectives hand out",
    "train.Objective": "a protocol",
    "train.Stage": "a record that tasks of one's own are made of",
}


def calls(place: Path) -> list[Call]:
    """All valid calls, their files in ``place``."""
    torch.manual_seed(5)
    q, k, v = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 4)
    x = torch.randn(2, 5, 6)
    found = [
        *mechanism_calls(q, k, v),
        *position_calls(),
        *look_calls(q, k, v, x, place),
        *model_calls(place),
        *show_calls(q, k, place),
        *task_calls(place),
        *seed_calls(q, k, v),
    ]
    return [dataclasses.replace(call, hints=_hints(call.function)) for call in found]


def _hints(function: Any) -> dict[str, Any]:
    """Annotations of a function or of a class's ``__init__``, where they can be read."""
    target = function.__init__ if isinstance(function, type) else function
    try:
        return dict(inspect.get_annotations(inspect.unwrap(target), eval_str=True))
    except (NameError, TypeError):
        return {}


def public_names() -> set[str]:
    """Every name that the package promises, with the methods of what it hands out."""
    names = set()
    for name in sl.__all__:
        found = getattr(sl, name)
        if not isinstance(found, ModuleType):
            names.add(name)
        elif name in ROOMS:
            names |= {f"{name}.{inner}" for inner in found.__all__}
    names |= {f"{kind}.{method}" for kind, methods in METHODS.items() for method in methods}
    return names | {"look", "reference.scaled_dot_product_attention"}
