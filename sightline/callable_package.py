"""Packages that are called like their main function: ``sl.look(q, k, v)`` beside ``sl.look.heads``.

A package and the function it is named after share one public name; whichever was imported first, both work.
"""

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["make_callable"]


def make_callable(name: str, load: Callable[[], Callable[..., Any]]) -> None:
    """Let a package be called.

    Args:
        name: Of the package, as ``__name__`` gives it.
        load: Imports and gives the function that it stands for.
    """

    class CallablePackage(ModuleType):
        """A package that is called like its main function."""

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return load()(*args, **kwargs)

        @property
        def __signature__(self) -> inspect.Signature:
            return inspect.signature(load())

    sys.modules[name].__class__ = CallablePackage
