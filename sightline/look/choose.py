"""The second pass, by the fastest way these inputs can go: the kernels on a GPU, the stream anywhere."""

from torch import Tensor

from sightline.look import kernels, stream
from sightline.look.pairs import Pairs
from sightline.look.stream import Found, Want
from sightline.shapes import Float


def measure(pairs: Pairs, want: Want, lse: Float[Tensor, "B H T"] | None = None) -> Found:
    """Pass over all weights once and reduce them to what was asked; see :func:`stream.measure`."""
    if not kernels.takes(pairs, want):
        return stream.measure(pairs, want, lse)
    if pairs.requires_grad:
        from sightline.look.kernels.differentiable import measure as by_kernels  # noqa: PLC0415
    else:
        from sightline.look.kernels.measure import measure as by_kernels  # noqa: PLC0415
    return by_kernels(pairs, want, lse)
