"""Contexts that contestants run in."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from sightline.bench.timing import Context


def combine_contexts(*contexts: Context) -> Context:
    """Make one context of several, entered in order."""

    @contextmanager
    def entered() -> Iterator[None]:
        with ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context())
            yield

    return entered


@contextmanager
def without_fast_path() -> Iterator[None]:
    """Switch off the kernels that run torch's attention modules as a whole in eval."""
    was_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_enabled)
