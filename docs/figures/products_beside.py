# ruff: noqa: ANN001, ANN201, INP001, N803, T201
"""What instructions cost beside products, on a GPU of Hopper's kind.

    python docs/figures/products_beside.py

A program multiplies tiles of 64 x 128 x 128, one in flight while it works on the other, as long as it lasts:
with n multiply-adds a thread beside each tile, with products alone, and with multiply-adds alone. If the two
overlapped, the time would be the longer of both; if not, their sum.
"""

import statistics

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

M, N, D = gl.constexpr(64), gl.constexpr(128), gl.constexpr(128)
MMA = gl.constexpr(gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 128, 16]))
SHARED = gl.constexpr(gl.NVMMASharedLayout.get_default_for([64, 128], gl.bfloat16))
LOADED = gl.constexpr(gl.BlockedLayout([1, 8], [2, 16], [4, 1], [1, 0]))
PROGRAMS = 2  # to a multiprocessor
PAIRS = 4000  # of tiles


@gluon.jit
def kernel(x_ptr, out_ptr, n_pairs, factor, ROUNDS: gl.constexpr, PRODUCTS: gl.constexpr):
    """Multiply, and add up: 64 multiply-adds of a thread a round."""
    rows = gl.expand_dims(gl.arange(0, M, gl.SliceLayout(1, LOADED)), 1)
    keys = gl.expand_dims(gl.arange(0, N, gl.SliceLayout(1, LOADED)), 1)
    columns = gl.expand_dims(gl.arange(0, D, gl.SliceLayout(0, LOADED)), 0)
    q = gl.allocate_shared_memory(gl.bfloat16, [M, D], SHARED)
    k = gl.allocate_shared_memory(gl.bfloat16, [N, D], SHARED)
    q.store(gl.load(x_ptr + rows * D + columns))
    k.store(gl.load(x_ptr + keys * D + columns))
    fence_async_shared()
    k = k.permute((1, 0))
    one = gl.zeros([M, N], gl.float32, MMA)
    other = gl.zeros([M, N], gl.float32, MMA)
    total = gl.zeros([M, N], gl.float32, MMA)
    for _ in range(n_pairs):
        if PRODUCTS:
            flight = warpgroup_mma(q, k, other, is_async=True)
        for _ in gl.static_range(ROUNDS):
            total = total * factor + one
        if PRODUCTS:
            other = warpgroup_mma_wait(0, deps=[flight])
            flight = warpgroup_mma(q, k, one, is_async=True)
        for _ in gl.static_range(ROUNDS):
            total = total * factor + other
        if PRODUCTS:
            one = warpgroup_mma_wait(0, deps=[flight])
    out = gl.sum(total + one + other, axis=1)
    gl.store(out_ptr + gl.program_id(0) * M + gl.arange(0, M, gl.SliceLayout(1, MMA)), out)


def nanoseconds(rounds: int, products: bool) -> float:
    """What a multiprocessor takes for a tile, the median of twelve."""
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    x = torch.randn(128, 128, device="cuda", dtype=torch.bfloat16) * 1e-3
    out = torch.empty(PROGRAMS * multiprocessors * 64, device="cuda")
    times = []
    for _ in range(14):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        kernel[(PROGRAMS * multiprocessors,)](x, out, PAIRS, 0.5, rounds, products, num_warps=4)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return 1e6 * statistics.median(times[2:]) / (PROGRAMS * 2 * PAIRS)


def main() -> None:
    """Measure, and print a table."""
    print("| multiply-adds a thread and tile | alone | beside products | both after each other |")
    print("|---|---|---|---|")
    products = nanoseconds(0, products=True)
    print(f"| 0 | | {products:.0f} ns | |")
    for rounds in (1, 2, 3, 4, 6, 8):
        alone, beside = nanoseconds(rounds, products=False), nanoseconds(rounds, products=True)
        print(f"| {64 * rounds} | {alone:.0f} ns | {beside:.0f} ns | {alone + products:.0f} ns |")


if __name__ == "__main__":
    main()
