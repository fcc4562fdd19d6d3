"""Triton kernels of the mechanism. Nothing here is imported before tensors that they take ask for it.

They run on a GPU. With ``SIGHTLINE_KERNELS=interpret`` in the environment the tensors of a CPU go through the
kernels too, in Triton's interpreter: slow, for tests and for finding out whether a kernel is wrong.
"""

import functools
import importlib.util
import os
import sys

__all__ = ["interpreted"]


def interpreted() -> bool:
    """Whether the kernels are to run on a CPU, in Triton's interpreter."""
    asked = os.environ.get("SIGHTLINE_KERNELS")
    return bool(asked) and _can_interpret(str(asked))


@functools.cache
def _can_interpret(asked: str) -> bool:
    """Ask Triton for its interpreter, or say why it can't be had."""
    if asked != "interpret":
        raise ValueError(f"SIGHTLINE_KERNELS must be 'interpret', or not set, got {asked!r}")
    if importlib.util.find_spec("triton") is None:
        raise ImportError(
            "SIGHTLINE_KERNELS=interpret needs Triton, which is not installed; pip install triton"
        )
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError(
            "SIGHTLINE_KERNELS=interpret comes too late, Triton is imported already; set TRITON_INTERPRET=1"
        )
    os.environ["TRITON_INTERPRET"] = "1"  # which Triton reads where a kernel is defined
    return True
