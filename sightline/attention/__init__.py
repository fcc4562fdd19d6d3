"""The mechanism: attention as pure functions and small modules. Start with ``reference.py``.

The package is callable: ``sl.attention(q, k, v)`` is :func:`sightline.attention.attend.attention`.
"""

from collections.abc import Callable
from typing import Any

from sightline.callable_package import make_callable


def _main() -> Callable[..., Any]:
    from sightline.attention.attend import attention  # noqa: PLC0415

    return attention


make_callable(__name__, _main)
