"""What comes before the pass over weights: lse as that pass reads it, and zeros to add to."""

import triton
import triton.language as tl

from sightline.look.kernels.tiles import EMPTY_LSE, FAR, LOG2E


@triton.jit
def begin_kernel(
    lse_ptr,  # (B H, T), natural
    padded_ptr,  # lse of each head, padded to ``pitch``, in units of log2
    integers_ptr,
    n_lse, T, pitch, n_padded, n_integers,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write lse, EMPTY_LSE where no query is or one looks at nothing, and clear the integers."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    head, query = at // pitch, at % pitch
    place = head * T + query
    lse = tl.load(lse_ptr + place, mask=(query < T) & (place < n_lse), other=float("inf"))
    lse = tl.where(tl.abs(lse) < FAR, lse * LOG2E, EMPTY_LSE)
    tl.store(padded_ptr + at, lse, mask=at < n_padded)
    tl.store(integers_ptr + at, tl.zeros((BLOCK,), tl.int64), mask=at < n_integers)
