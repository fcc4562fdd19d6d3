"""Every public name with its signature, and every member of the public classes with its own."""

import inspect
import re

import torch
from torch import nn

import sightline as sl

MODULES = ("masks", "measures", "scores", "positions", "nn", "models", "show", "reference", "tasks", "train")
# What has no underscore and is Sightline's own all the same: it may change without a word.
OURS_ALONE = {
    "sl.Sight": """ after axes axis_of backward check_position check_span is_aligned is_followed kept parents
        require_kept require_whole restore_lead
        restore_queries shard skipped with_kept""",
    "sl.Look": " clip request",
    "sl.Mask": " block fitted keys limits tensors unfitted",
    "sl.masks.Band": " allows clipped keys keys_of_all zero_outside",
    "Recording": """ about add expect explain_silence explanation full launch list_unseen mark_called
        mark_dark mark_skipped mark_unseen note_skipped of ran rename settle take_back
        unseen_warning was_called""",
    "Edit": " call_attention call_sdpa running",
    "sl.models.VisionTransformer": " cos sin",
    "sl.positions.SinusoidalPositions": " rows",
    "sl.positions.SinusoidalPositions2d": " rows",
}
MADE_BY_US = {
    "sl.Sight",
    "Recording",
    "Edit",
    "sl.show.Page",
    "sl.tasks.Run",
}  # their constructors are ours alone


def contract():
    """Names -> signatures, or members with theirs, without annotations: those are no promise."""
    found = {f"sl.{name}": described(getattr(sl, name)) for name in sl.__all__}
    for module in MODULES:
        inside = getattr(sl, module)
        own = [x for x in public(inside) if is_ours(getattr(inside, x))]
        found |= {f"sl.{module}.{name}": described(getattr(inside, name)) for name in own}
    for name, one in found.items():  # what a measure of one's own defines is said once, by sl.Measure
        if name.startswith("sl.measures.") and name not in {"sl.measures.Measure", "sl.measures.Out"}:
            found[name] = {"": one[""]} if isinstance(one, dict) else one
    recording = seen()
    attributes = dict.fromkeys((name for name in vars(recording) if name[0] != "_"), "attribute")
    found["Recording"] = described(type(recording)) | attributes
    found["Edit"] = described(type(sl.edit(nn.Identity(), scale=2.0)))
    return {name: promised(name, x) for name, x in sorted(found.items()) if name != "sl.masks.Mask"}


def promised(name, entry):
    """An entry without what is ours alone."""
    if isinstance(entry, str):
        return entry
    inside = {*OURS_ALONE.get(name, "").split(), *([""] if name in MADE_BY_US else [])}
    return {member: x for member, x in sorted(entry.items()) if member not in inside}


def seen():
    """A recording, of a layer that has run."""
    layer = nn.MultiheadAttention(4, 2)
    with sl.watch(layer) as recording:
        layer(*[torch.zeros(3, 1, 4)] * 3)
    return recording


def public(module):
    """The names that a module means to be used."""
    here = [name for name, x in vars(module).items() if getattr(x, "__module__", "") == module.__name__]
    return [name for name in getattr(module, "__all__", here) if name[0] != "_"]


def is_ours(x):
    """Whether something is Sightline's, and no name of torch's that is handed on."""
    return not inspect.ismodule(x) and getattr(x, "__module__", "sightline").startswith("sightline")


def described(x):
    """The signature of a function, the members of a class, the kind of anything else."""
    if isinstance(x, type):
        return members(x)
    return signature(x) if callable(x) else type(x).__name__


def members(cls):
    """What a class gives its users beyond what torch and Python give: names and signatures."""
    found = {"": signature(cls)}
    for base in cls.__mro__:
        if base.__module__.startswith("sightline"):
            fields = dict.fromkeys(vars(base).get("__annotations__", {}), "field")
            for name, member in {**fields, **vars(base)}.items():
                if name[0] != "_" or name in {"__call__", "__getitem__", "__and__", "__sub__", "__matmul__"}:
                    found.setdefault(name, kind(member))
    return dict(sorted(found.items()))


def kind(member):
    """A member's signature, or what else it is."""
    if isinstance(member, property):
        return "property"
    function = getattr(member, "__func__", member)
    return signature(function) if callable(function) else "field"


def signature(function):
    """Names, kinds and defaults of the arguments."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return "(...)"
    plain = [x.replace(annotation=inspect.Parameter.empty) for x in found.parameters.values()]
    text = str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return re.sub(r" at 0x\w+", "", re.sub(r"\bsightline(\.\w+)*\.", "", text))
