"""Measure as if nobody else were there: no modes, no autograd, no autocast, no functorch.

A look happens in the middle of a user's forward, below autograd and inside whatever modes are on. Inside
:func:`isolated` torch is in its plain state, so that ``detach`` shares the version counter that tells
later whether q or k was written to, and ``vmap`` works.
"""

from typing import Any

import torch

_KEY = torch._C.DispatchKey.ADInplaceOrView  # noqa: SLF001
_INCLUDED: Any = torch._C._dispatch_tls_local_include_set()  # noqa: SLF001
_EXCLUDED: Any = torch._C._dispatch_tls_local_exclude_set()  # noqa: SLF001


_PLAIN = _INCLUDED.add(_KEY), _EXCLUDED.remove(_KEY)
_INFERENCE = _INCLUDED.remove(_KEY), _EXCLUDED.add(_KEY)


class isolated:  # noqa: N801 (used as a function)
    """Put torch's dispatcher into its plain state, and back."""

    __slots__ = ("_grad", "_guard")

    def __enter__(self) -> None:
        """Into the plain state."""
        sets = _INFERENCE if torch.is_inference_mode_enabled() else _PLAIN
        self._guard = torch._C._ForceDispatchKeyGuard(*sets)  # noqa: SLF001
        self._grad = torch.is_grad_enabled()
        self._guard.__enter__()
        torch._C._set_grad_enabled(False)  # noqa: SLF001

    def __exit__(self, *_error: object) -> None:
        """Back."""
        torch._C._set_grad_enabled(self._grad)  # noqa: SLF001
        self._guard.__exit__(None, None, None)


def is_recomputing() -> bool:
    """Whether a backward pass is running: what it computes is gradient checkpointing's second forward."""
    return torch._C._current_graph_task_id() != -1  # noqa: SLF001
