"""What the modules that are running were called with, from the innermost outwards.

It is read from Python's stack: ``nn.Module.__call__`` keeps its arguments as they were given, also where
``forward`` binds their names again.
"""

import functools
import inspect
import os
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

from torch import nn

from sightline.watch.modules import SNAPSHOTS, local_variables, uncompiled

__all__ = ["Given", "generation_mask", "given_on_stack", "module_calls"]

_CALL = "_wrapped_call_impl"  # what nn.Module.__call__ is
_GENERATION = os.path.join("transformers", "generation")  # noqa: PTH118 (a part of a path)
_STATE = "model_kwargs"  # what the methods of Hugging Face's generate keep from step to step


class Given(NamedTuple):
    """What a running module was called with, of the arguments that were asked for."""

    module: nn.Module
    arguments: dict[str, Any]

    def takes(self, name: str) -> bool:
        """Return whether ``forward`` has an argument of this name."""
        kind: Any = type(uncompiled(self.module))
        return name in self.arguments or name in _places(kind)


def given_on_stack(names: frozenset[str], roots: tuple[nn.Module, ...]) -> tuple[list[Given], bool]:
    """Return what running modules were called with, innermost first, without arguments that are None.

    It is asked at every call of an attention, so it makes few calls itself.

    Args:
        names: The arguments. Modules that take none of them are left out.
        roots: Modules beyond whose calls nothing counts.

    Returns:
        What they were called with, and whether one of ``roots`` is running.
    """
    found: list[Given] = []
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        if frame.f_code.co_name == _CALL:
            variables = frame.f_locals
            module, args, kwargs = variables.get("self"), variables.get("args"), variables.get("kwargs")
            if SNAPSHOTS and sys.gettrace() is None:
                variables.clear()  # a snapshot, which would keep tensors alive
            if not isinstance(module, nn.Module) or args is None or kwargs is None:
                frame = frame.f_back
                continue
            is_wrapper = "_orig_mod" in module._modules  # noqa: SLF001 (torch.compile's)
            kind: Any = type(uncompiled(module) if is_wrapper else module)
            places = _places_of(kind, names)
            if places or not names.isdisjoint(kwargs):
                found.append(Given(module, _named(args, kwargs, places, names)))
            if module in roots:
                return found, True
        frame = frame.f_back
    return found, False


def _named(
    args: tuple[Any, ...], kwargs: dict[str, Any], places: tuple[tuple[str, int], ...], names: frozenset[str]
) -> dict[str, Any]:
    """Return the arguments of these names that are not None."""
    arguments = {name: x for name, x in kwargs.items() if name in names and x is not None}
    for name, i in places:
        if i < len(args) and args[i] is not None:
            arguments[name] = args[i]
    return arguments


def module_calls() -> Iterator[tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]:
    """Yield the running modules, innermost first, with the arguments of their calls."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        if frame.f_code.co_name == _CALL:
            module, args, kwargs = local_variables(frame, "self", "args", "kwargs")
            if isinstance(module, nn.Module):
                yield module, args or (), kwargs or {}
        frame = frame.f_back


def generation_mask() -> Any:
    """Return the ``attention_mask`` of a ``generate`` of Hugging Face that is running; None if none is."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        if _STATE in frame.f_code.co_varnames and _GENERATION in frame.f_code.co_filename:
            (state,) = local_variables(frame, _STATE)
            if isinstance(state, dict) and "attention_mask" in state:
                return state["attention_mask"]
        frame = frame.f_back
    return None


@functools.lru_cache(1024)
def _places_of(kind: Any, names: frozenset[str]) -> tuple[tuple[str, int], ...]:
    """Return which of these names a class's ``forward`` takes, and where they stand."""
    return tuple((name, place) for name, place in _places(kind).items() if name in names)


@functools.lru_cache(1024)
def _places(kind: Any) -> dict[str, int]:
    """Return where each argument of a class's ``forward`` stands, ``self`` not counted."""
    try:
        names = list(inspect.signature(kind.forward).parameters)
    except Exception:  # noqa: BLE001 (a module of torch.jit has no forward that could be asked)
        return {}
    return {name: i for i, name in enumerate(names[1:])}
