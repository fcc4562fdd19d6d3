"""What a piece of code creates: the number of elements of every tensor that torch hands back."""

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Sizes(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen: list[tuple[int, str]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor):  # an expanded view has many elements and little storage
                stored = x.untyped_storage().nbytes() // x.element_size()
                self.seen.append((min(x.numel(), stored), str(func)))
        return out


@contextmanager
def created():
    """Collect ``(elements, operation)`` of all that is created, forward or backward, within the block."""
    with _Sizes() as sizes:
        yield sizes.seen
