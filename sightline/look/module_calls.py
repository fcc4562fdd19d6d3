"""The modules that are running, from the innermost outwards, and what each was called with.

They are read from Python's stack: ``nn.Module.__call__`` keeps its arguments as they were given, also where
``forward`` binds their names again.
"""

import functools
import inspect
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

from torch import nn

from sightline.look.owners import local_variables, uncompiled

__all__ = ["ModuleCall", "generation_mask", "module_calls"]

_CALL = "_wrapped_call_impl"  # what nn.Module.__call__ is
_STATE = "model_kwargs"  # what the methods of Hugging Face's generate keep from step to step


class ModuleCall(NamedTuple):
    """One call of a module that has not returned yet."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def _places(self) -> dict[str, int]:
        kind: Any = type(uncompiled(self.module))
        return _places(kind)

    def takes(self, name: str) -> bool:
        """Return whether ``forward`` has an argument of this name."""
        return name in self.kwargs or name in self._places

    def named(self, names: frozenset[str]) -> dict[str, Any]:
        """Return what was given for arguments of these names, without those that are None."""
        found = {name: x for name, x in self.kwargs.items() if name in names and x is not None}
        if self.args:
            for name, place in self._places.items():
                if place < len(self.args) and name in names and self.args[place] is not None:
                    found[name] = self.args[place]
        return found


def module_calls(depth: int = 1) -> Iterator[ModuleCall]:
    """Yield the calls of modules on the stack, innermost first.

    Args:
        depth: How many frames to leave out.
    """
    frame: FrameType | None = sys._getframe(depth)  # noqa: SLF001
    while frame is not None:
        if frame.f_code.co_name == _CALL:
            module, args, kwargs = local_variables(frame, "self", "args", "kwargs")
            if isinstance(module, nn.Module):
                yield ModuleCall(module, args or (), kwargs or {})
        frame = frame.f_back


def generation_mask() -> Any:
    """Return the ``attention_mask`` of a ``generate`` of Hugging Face that is running; None if none is."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        if _STATE in frame.f_code.co_varnames:
            (state,) = local_variables(frame, _STATE)
            if isinstance(state, dict) and "attention_mask" in state:
                return state["attention_mask"]
        frame = frame.f_back
    return None


@functools.lru_cache(1024)
def _places(kind: Any) -> dict[str, int]:
    """Return where each argument of a class's ``forward`` stands, ``self`` not counted."""
    try:
        names = list(inspect.signature(kind.forward).parameters)
    except Exception:  # noqa: BLE001 (a module of torch.jit has no forward that could be asked)
        return {}
    return {name: i for i, name in enumerate(names[1:])}
