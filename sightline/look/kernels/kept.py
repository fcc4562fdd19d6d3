"""What the kernels of later questions share: q, k, the mask, and the log-sum-exp that was kept with them."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from sightline.look.inputs import ScoreInputs
from sightline.look.kernels.measure import KernelArgs
from sightline.look.kernels.tiles import EMPTY_LSE, LOG2E
from sightline.look.mass_plan import MassPlan
from sightline.shapes import Float


class KeptArgs(KernelArgs):
    """What every kernel is given, and each query's log-sum-exp.

    Attributes:
        lse: (B, H, T), natural; not finite for a query that looks at nothing.
    """

    def __init__(self, inputs: ScoreInputs, lse: Float[Tensor, "B H T"]) -> None:
        super().__init__(inputs)
        lse = lse.float()
        if inputs.padding is not None:
            lse = lse.masked_fill(inputs.padding, torch.inf)
        self.lse = lse.contiguous()

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """A place for sums, (B, H, ...)."""
        return torch.empty((self.b, self.h, *shape), dtype=dtype, device=self.q.device)


def tiles_of_rows(x: Float[Tensor, "B H n D"], rows: int, width: int) -> TensorDescriptor | None:
    """A tensor as the copy engine reads it, in tiles of some rows; None where its strides don't suit that."""
    strides = x.stride()
    if strides[3] != 1 or any(n * x.element_size() % 16 for n in strides[:3]) or x.data_ptr() % 16:
        return None
    return TensorDescriptor(x, list(x.shape), list(strides), [1, 1, rows, width])


def plan_args(plan: MassPlan) -> tuple[Tensor, ...]:
    """A plan as a kernel takes it."""
    return plan.keys, plan.lowest, plan.highest, plan.walks, plan.sets, plan.owners


def plan_strides(plan: MassPlan) -> tuple[int, int]:
    """How far the places and the tiles of the next item are, 0 where all items have the same plan."""
    return (plan.keys.size(1), plan.lowest.size(1)) if plan.keys.size(0) > 1 else (0, 0)


@triton.jit
def load_tile(ptr, rows, row_stride, n_rows, width, width_stride, D):
    """Some rows of a matrix, zeros beyond its edges."""
    inside = ((rows >= 0) & (rows < n_rows))[:, None] & (width < D)[None, :]
    at = rows[:, None].to(tl.int64) * row_stride + width[None, :] * width_stride
    return tl.load(ptr + at, mask=inside, other=0.0)


@triton.jit
def load_lse(ptr, queries, there):
    """The lse in units of log2, EMPTY_LSE for a query that looks at nothing."""
    lse = tl.load(ptr + queries, mask=there, other=float("inf"))
    return tl.where(tl.abs(lse) < 1e30, lse * LOG2E, EMPTY_LSE)


@triton.jit
def queries_between(
    first, last, first_key, limit, low, high,
    HAS_LOW: tl.constexpr, HAS_HIGH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The queries of a window that BN keys walk over, [start, end); [inner, outer) are tiles that see all."""
    start, end = first, last
    if HAS_HIGH:
        start = tl.maximum(start, first_key - high)
    if HAS_LOW:
        end = tl.minimum(end, first_key + BN - low)
    if first_key >= limit:
        end = start
    inner, outer = start, end
    if HAS_HIGH:
        inner = start + tl.cdiv(tl.maximum(first_key + BN - 1 - high - start, 0), BM) * BM
    if HAS_LOW:
        outer = tl.minimum(outer, first_key + 1 - low)
    outer = start + (tl.maximum(outer - start, 0) // BM) * BM
    if (first_key + BN > limit) | (outer <= inner):
        inner, outer = end, end
    return start, inner, outer, end
