"""Whether a call looks from one sequence into another: by its module's name, or by what the module was given.

Where a sequence looks into another of its length, numbers don't tell: a mask of keys is one either way. Names
do for most models. Else a module that was given one sequence alone looks into that.
"""

import functools
import inspect
import re
from typing import Any

import torch
from torch import Tensor, nn

from sightline.look.module_names import CROSS_ATTENTION, is_cross_name
from sightline.watch.module_calls import module_calls
from sightline.watch.modules import Owner

__all__ = ["is_cross_attention"]

_SELF = re.compile(r"self_?att|^self$", re.IGNORECASE)
# Arguments that are no sequence to look into, as Hugging Face, diffusers and timm call them.
_BESIDE = re.compile(
    r"mask|bias|pos|rot|rope|^cos|^sin|freq|value(?!_states)|^v$|past|cache|residual|scale|temb",
    re.IGNORECASE,
)


def is_cross_attention(owner: Owner, s: int) -> bool | None:
    """Return whether the module that runs looks from one sequence into another; None if nothing tells.

    Args:
        owner: The module.
        s: How many keys it looks at.
    """
    *around, own = owner.name.split(".")
    if around and CROSS_ATTENTION.search(around[-1]):
        return True
    if _SELF.search(own):
        return False
    given = None if owner.site is not None else _by_arguments(owner, s)
    return given if given is not None or not is_cross_name(owner.name) else True


def _by_arguments(owner: Owner, s: int) -> bool | None:
    """Return what the innermost module that makes queries and keys was given tells; None if nothing."""
    is_in_owner = False
    for module, args, kwargs in module_calls():
        is_in_owner = is_in_owner or module is owner.module
        if is_in_owner and _projects(module):
            return _is_given_two(module, args, kwargs, s)
    return None


def _projects(module: Any) -> bool:
    """Whether a module may make queries and keys itself; what has no parameters is given them."""
    return isinstance(module, nn.Module) and next(module.parameters(), None) is not None


def _is_given_two(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], s: int) -> bool | None:
    """Whether a module was given, beside its first, another sequence of S entries."""
    forward = module.forward
    function = getattr(forward, "__func__", None)
    try:
        if function is None or getattr(forward, "__self__", None) is not module:
            given = inspect.signature(forward).bind(*args, **kwargs).arguments
        else:
            given = dict(_signature(function).bind(module, *args, **kwargs).arguments)
            del given[next(iter(given))]  # the module itself
    except (TypeError, ValueError):
        return None
    tensors = [
        x
        for name, value in given.items()
        if not _BESIDE.search(name)
        for own, x in _named(name, value)
        if isinstance(x, Tensor) and x.is_floating_point() and not x.is_nested and not _BESIDE.search(own)
    ]
    if not tensors:
        return None
    first = tensors[0]
    return any(x.dim() > 2 and s in x.shape[:-1] and not _are_same(x, first) for x in tensors[1:])


def _named(name: str, value: Any) -> list[tuple[str, Any]]:
    """What an argument holds, by name: ``**kwargs`` and ``*args`` hold several."""
    if isinstance(value, dict):
        return [(str(key), x) for key, x in value.items()]
    return [(name, x) for x in value] if name == "args" else [(name, value)]


@functools.lru_cache(256)
def _signature(function: Any) -> inspect.Signature:
    return inspect.signature(function)


def _are_same(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors are one, or views of the same numbers."""
    if x is y:
        return True
    with torch.no_grad():
        return x.shape == y.shape and x.stride() == y.stride() and x.data_ptr() == y.data_ptr()
