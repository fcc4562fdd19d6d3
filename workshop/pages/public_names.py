"""The public names of the package, as the pages of the reference list them."""

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import sightline as sl

SPACES = (
    "masks",
    "measures",
    "scores",
    "positions",
    "nn",
    "models",
    "show",
    "tasks",
    "train",
    "textbook",
    "reference",
)
INTERNAL = {"check_span", "extra_repr", "require_kept", "restore_lead"}  # members for our own code


def public_names() -> Iterator[tuple[str, Any]]:
    """Every function and class that is ours and promised, by its dotted name."""
    for name in sl.__all__:
        found = getattr(sl, name)
        if name == "look":  # a package that can be called
            yield "sl.look", importlib.import_module("sightline.look.look").look
        elif not inspect.ismodule(found):
            yield f"sl.{name}", found
    for space in SPACES:
        module = getattr(sl, space)
        names = module.__all__ if hasattr(module, "__all__") else []
        for name in sorted(set(names), key=lambda name: (name.lower(), name)):
            found = getattr(module, name)
            ours = (getattr(found, "__module__", None) or "").startswith("sightline")
            if ours and (inspect.isclass(found) or inspect.isfunction(found)):
                yield f"sl.{space}.{name}", found


def members(found: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class documents itself."""
    for owner in found.__mro__:
        if not owner.__module__.startswith("sightline"):
            continue
        for name, member in vars(owner).items():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            is_internal = name.startswith("_") or name in INTERNAL
            if inspect.isfunction(function) and inspect.getdoc(function) and not is_internal:
                yield name, member


def has_example(found: Any) -> bool:
    """Whether the docstring, or that of a member, has code that runs."""
    texts = [found.__doc__ or ""]
    if inspect.isclass(found):
        texts += [inspect.getdoc(member) or "" for _, member in members(found)]
    return any(">>>" in text for text in texts)
