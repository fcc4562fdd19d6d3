"""Measure as if nobody else were there: no modes, no autograd, no autocast, no functorch.

A look happens in the middle of a user's forward, below autograd and inside whatever modes are on. Inside
:func:`isolated` torch is in its plain state, so that ``detach`` shares the version counter that tells
later whether q or k was written to, and ``vmap`` works.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

_KEY = torch._C.DispatchKey.ADInplaceOrView  # noqa: SLF001
_INCLUDED: Any = torch._C._dispatch_tls_local_include_set()  # noqa: SLF001
_EXCLUDED: Any = torch._C._dispatch_tls_local_exclude_set()  # noqa: SLF001


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Put torch's dispatcher into its plain state, and back."""
    included, excluded = _INCLUDED.add(_KEY), _EXCLUDED.remove(_KEY)
    if torch.is_inference_mode_enabled():
        included, excluded = _INCLUDED.remove(_KEY), _EXCLUDED.add(_KEY)
    with torch._C._ForceDispatchKeyGuard(included, excluded), torch.no_grad():  # noqa: SLF001
        yield


def is_recomputing() -> bool:
    """Whether a backward pass is running: what it computes is gradient checkpointing's second forward."""
    return torch._C._current_graph_task_id() != -1  # noqa: SLF001
