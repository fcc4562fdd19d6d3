"""The line of sight: what any model attends to, without the matrix and without changing its output.

The package is callable: ``sl.look(q, k, v)`` is :func:`sightline.look.look.look`, ``sl.look.heads`` the
module of that name.
"""

import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from sightline.look.sight import Sight


class _CallablePackage(ModuleType):
    """A package that is called like its main function."""

    def __call__(self, *args: Any, **kwargs: Any) -> "Sight":
        return _main_function()(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(_main_function())


_main: "list[Callable[..., Sight]]" = []


def _main_function() -> "Callable[..., Sight]":
    """What the package is called like; imported once it is needed."""
    if not _main:
        from sightline.look.look import look  # noqa: PLC0415

        _main.append(look)
    return _main[0]


sys.modules[__name__].__class__ = _CallablePackage
