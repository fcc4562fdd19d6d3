"""The mean over the heads of attention's weights, without storing those of any head.

A program owns a tile of the average and walks over the heads, each of whose weights it computes from the
log-sum-exps of its queries, which a first kernel finds.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from sightline.shapes import Float

_ROWS = (128, 64)  # queries and keys of a tile where log-sum-exps are found
_TILE = (64, 128)  # and where the weights are averaged


@triton.jit
def _tile(
    x_ptr, row_stride, width_stride, first, n, width,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Rows of q or k; zeros beyond their end."""
    rows, columns = first + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    at = rows.to(tl.int64)[:, None] * row_stride + columns[None, :] * width_stride
    return tl.load(x_ptr + at, mask=(rows < n)[:, None] & (columns < width)[None, :], other=0.0)


@triton.jit
def lse_kernel(
    q_ptr, q_b, q_h, q_t, q_d, k_ptr, k_b, k_h, k_s, k_d,
    lse_ptr,  # (B, H, T), in units of log2
    H, T, S, D, scale2,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """The log-sum-exps of BM queries of one head."""
    head = tl.program_id(1).to(tl.int64)
    b, h = head // H, head % H
    first = tl.program_id(0) * BM
    q = _tile(q_ptr + b * q_b + h * q_h, q_t, q_d, first, T, D, BM, BD)
    k_ptr += b * k_b + h * k_h
    m = tl.full((BM,), float("-inf"), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    for first_key in range(0, S, BN):
        k = _tile(k_ptr, k_s, k_d, first_key, S, D, BN, BD)
        x = tl.dot(q, tl.trans(k)) * scale2
        x = tl.where((first_key + tl.arange(0, BN) < S)[None, :], x, float("-inf"))
        larger = tl.maximum(m, tl.max(x, axis=1))
        l = l * tl.exp2(m - larger) + tl.sum(tl.exp2(x - larger[:, None]), axis=1)
        m = larger
    queries = first + tl.arange(0, BM)
    tl.store(lse_ptr + head * T + queries, m + tl.log2(l), mask=queries < T)


@triton.jit
def average_kernel(
    q_ptr, q_b, q_h, q_t, q_d, k_ptr, k_b, k_h, k_s, k_d, lse_ptr,
    average_ptr,  # (B, T, S)
    H, T, S, D, scale2,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """The mean over the heads of BM x BN weights."""
    b = tl.program_id(2).to(tl.int64)
    first, first_key = tl.program_id(1) * BM, tl.program_id(0) * BN
    queries, keys = first + tl.arange(0, BM), first_key + tl.arange(0, BN)
    q_ptr += b * q_b
    k_ptr += b * k_b
    lse_ptr += b * H * T
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(H):
        q = _tile(q_ptr, q_t, q_d, first, T, D, BM, BD)
        k = _tile(k_ptr, k_s, k_d, first_key, S, D, BN, BD)
        lse = tl.load(lse_ptr + queries, mask=queries < T, other=0.0)
        total += tl.exp2(tl.dot(q, tl.trans(k)) * scale2 - lse[:, None])
        q_ptr += q_h
        k_ptr += k_h
        lse_ptr += T
    at = (b * T + queries)[:, None] * S + keys[None, :]
    average = (total / H).to(average_ptr.dtype.element_ty)
    tl.store(average_ptr + at, average, mask=(queries < T)[:, None] & (keys < S)[None, :])


def average_weights(q: Float[Tensor, "B H T D"], k: Float[Tensor, "B H S D"]) -> Float[Tensor, "B T S"]:
    """softmax(q kᵀ / √D), averaged over the heads, in the dtype of q and without gradients."""
    (b, h, t, d), s = q.shape, k.size(2)
    lse = torch.empty((b, h, t), dtype=torch.float32, device=q.device)
    average = torch.empty((b, t, s), dtype=q.dtype, device=q.device)
    tensors = (q, *q.stride(), k, *k.stride(), lse)
    sizes, width = (h, t, s, d, math.log2(math.e) / math.sqrt(d)), max(16, triton.next_power_of_2(d))
    rows, keys = _ROWS
    lse_kernel[(triton.cdiv(t, rows), b * h)](
        *tensors, *sizes, BM=rows, BN=keys, BD=width, num_warps=8, num_stages=3
    )
    rows, keys = _TILE
    average_kernel[(triton.cdiv(s, keys), triton.cdiv(t, rows), b)](
        *tensors, average, *sizes, BM=rows, BN=keys, BD=width, num_warps=8, num_stages=2
    )
    return average
