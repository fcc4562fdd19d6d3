"""The line of sight: what any model attends to, without the matrix and without changing its output.

The package is callable: ``sl.look(q, k, v)`` is :func:`sightline.look.look.look`, ``sl.look.heads`` the
module of that name.
"""

from collections.abc import Callable
from typing import Any

from sightline.callable_package import make_callable


def _main() -> Callable[..., Any]:
    from sightline.look.look import look  # noqa: PLC0415

    return look


make_callable(__name__, _main)
