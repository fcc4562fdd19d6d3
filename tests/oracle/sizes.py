"""The sizes of all tensors that some code creates."""

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Sizes(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor):  # an expanded view has many elements and little storage
                self.sizes.append(
                    (min(x.numel(), x.untyped_storage().nbytes() // x.element_size()), str(func))
                )
        return out


@contextmanager
def sizes_created():
    """Yield a list that grows by (number of elements, operator) of each tensor created in the block."""
    with _Sizes() as mode:
        yield mode.sizes
