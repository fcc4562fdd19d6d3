"""What kernels are given: q, k, the mask and the log-sum-exp, by pointers, strides and descriptors."""

import math
from typing import Any

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from sightline.attention.kernels.limits import NO_LIMIT, Limits, limits_of
from sightline.look.inputs import ScoreInputs
from sightline.look.kernels.prepared import allocate
from sightline.look.kernels.shapes import Tiles, blocks_of, tiles_of, width_of
from sightline.shapes import Float

_LOG2E = math.log2(math.e)


class KernelArgs:
    """What every kernel is given: q, k and the mask, by pointers and strides."""

    def __init__(self, inputs: ScoreInputs, limits: Limits | None = None) -> None:
        self.inputs, self.q, self.k = inputs, inputs.q, inputs.k
        shape = self.b, self.h, self.t, self.s = inputs.shape
        self.limits = limits_of(inputs.mask, shape) if limits is None else limits
        self.width = width_of(inputs)
        self.tiles: Tiles = tiles_of(self.width, self.q.dtype)
        # Queries and keys with their strides.
        self.tensors: tuple[Any, ...] = (self.q, *self.q.stride(), self.k, *self.k.stride())
        # The mask's tensors with theirs; any pointer where there is none.
        lengths, allowed, added = self.limits[2:]
        self.mask: tuple[Any, ...] = (
            self.q if lengths is None else lengths, *((0, 0) if lengths is None else lengths.stride()),
            self.q if allowed is None else allowed, *((0,) * 4 if allowed is None else allowed.stride()),
            self.q if added is None else added, *((0,) * 4 if added is None else added.stride()),
        )  # fmt: skip
        # H, how many heads share keys, T, S, D.
        self.sizes = self.h, self.h // self.k.size(1), self.t, self.s, self.q.size(3)
        # The scale in units of log2, and the limits on the distance.
        self.scale_and_band = inputs.scale * _LOG2E, self.limits.low, self.limits.high
        # Which limits there are: what is not there is not compiled.
        self.has = {
            "HAS_LENGTHS": lengths is not None,
            "HAS_ALLOWED": allowed is not None,
            "HAS_ADDED": added is not None,
            "HAS_LOW": self.limits.low > -NO_LIMIT,
            "HAS_HIGH": self.limits.high < NO_LIMIT,
        }

    def q_tiles(self, queries: int) -> TensorDescriptor | None:
        """Queries as the copy engine reads it, in tiles; None where its strides don't suit that."""
        strides = self.q.stride()
        size = self.q.element_size()
        if strides[3] != 1 or any(x * size % 16 for x in strides[:3]) or self.q.data_ptr() % 16:
            return None
        shape = [1, 1, queries, self.width]
        return TensorDescriptor(self.q, list(self.q.shape), list(strides), shape)

    @property
    def precision(self) -> str:
        """Float32 is multiplied as IEEE says, unless tf32 was chosen for all of torch."""
        full = self.q.dtype != torch.float32 or torch.get_float32_matmul_precision() == "highest"
        return "ieee" if full else "tf32"

    def blocks(self, n: int, size: int) -> tuple[int, int]:
        """How many programs: one for each block of each head."""
        return blocks_of(n, size), self.b * self.h

    def rows_like(self, dtype: torch.dtype) -> Tensor:
        """A number for each query."""
        return self.per_head((self.t,), dtype)

    def per_head(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A place for something of each head."""
        return allocate(torch.empty, (self.b, self.h, *shape), dtype, self.q)


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
