"""The dispatch keys that ``listen.py`` hears by, and how operators are led to it."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.library import Library, fallthrough_kernel

__all__ = ["ALL", "ATTENTION", "BELOW", "BY_HAND", "CHANGES", "KEYS", "MATRICES", "lead", "lead_by_name"]

# ruff: noqa: SLF001 (torch has no public way to its dispatcher)
_C: Any = torch._C
ATTENTION = "TESTING_ONLY_GenericMode"  # hears attention; the highest key that nobody uses
BY_HAND = "TESTING_ONLY_GenericWrapper"  # hears what becomes of scores
MATRICES = "DeferredInit"  # hears products of two matrices, which most often are linear layers
KEYS = {name: _C._parse_dispatch_key(name) for name in (ATTENTION, BY_HAND, MATRICES)}
BELOW = {name: _C._dispatch_keyset_full_after(key) for name, key in KEYS.items()}
CHANGES = _C.DispatchKeySet(KEYS[BY_HAND])
ALL = CHANGES.add(KEYS[ATTENTION]).add(KEYS[MATRICES])
_LIBRARIES: list[Library] = []  # what is registered lasts as long as these


def include(key: str, *, on: bool) -> None:
    """Turn a key on or off in this thread."""
    _C._dispatch_tls_set_dispatch_key_included(KEYS[key], on)


@functools.cache
def fall_through() -> None:
    """Let every operator pass by all keys, unless it is led to something."""
    for name in KEYS:
        fallback = Library("_", "IMPL")
        fallback.fallback(fallthrough_kernel, name)
        _LIBRARIES.append(fallback)
    for key in KEYS.values():  # operators of operators have no fallback
        torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(key)
        for operator in higher_order_operators().values():
            operator.fallthrough(key)


def lead(func: Any, key: str, hear: Callable[..., Any]) -> None:
    """Lead a key to a function for one operator; it is given the keys that are on, then the arguments."""
    schema = func._schema
    name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    _implement(name, hear, key)


def lead_by_name(
    name: str, key: str, hear: Callable[..., Any], known_of: Callable[[Any], Any] = lambda func: func
) -> None:
    """The same for an operator that need not be there yet; the function is given the operator first.

    Args:
        name: The operator.
        key: The key.
        hear: The function.
        known_of: What is known of the operator, for the function to be given instead.
    """
    namespace, operator = name.split("::")
    known: list[Any] = []

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        if not known:
            known.append(known_of(getattr(getattr(torch.ops, namespace), operator).default))
        return hear(known[0], keys, *args, **kwargs)

    _implement(name, kernel, key)


def _implement(name: str, kernel: Callable[..., Any], key: str) -> None:
    library = Library(name.split("::", maxsplit=1)[0], "IMPL")
    library.impl(name, kernel, key, with_keyset=True)
    _LIBRARIES.append(library)


def higher_order_operators() -> dict[str, Any]:
    """Operators that take functions, by their names."""
    operators: dict[str, Any] = torch._ops._higher_order_ops
    return operators
