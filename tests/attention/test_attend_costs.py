"""What attention never builds."""

import subprocess
import sys

import pytest
import torch

import sightline as sl
from sightline.watch.readers.operators import FusedCallRecorder
from tests.attention.attend_oracle import in_blocks, qkv, scored
from tests.attention.created import created

masks = sl.masks


def largest(function, *tensors):
    tensors = [x.detach().clone().requires_grad_() for x in tensors]
    with created() as forward:
        output = function(*tensors)
    with created() as backward:
        output.sum().backward()
    assert all(x.grad is not None for x in tensors)
    return max(forward), max(backward)


def test_causal_builds_nothing_of_t_by_s():
    q, k, v = qkv(2, 3, t=101, s=101, d=8, d_v=8, dtype=torch.float32)
    for mask in (masks.causal(), masks.causal() & masks.window(500, 3), None):
        for size, name in largest(lambda *x, m=mask: sl.attention(*x, m), q, k, v):
            assert size < 101 * 101, name


@pytest.mark.parametrize(
    "mask",
    [
        masks.causal(),
        masks.window(5, 5),
        masks.causal() & masks.padding([70, 29]),
        masks.padding([70, 29]) & masks.window(None, 13),
        masks.bias(torch.zeros(1, 73)) & masks.causal(),
    ],
    ids=["causal", "window", "causal_padding", "padding_window", "bias_causal"],
)
@pytest.mark.parametrize("score", [None, "additive"])
def test_the_block_path_builds_nothing_of_t_by_s(mask, score):
    t, s, lead = 71, 73, 2
    q, k, v = qkv(lead, 1, t=t, s=s, d=8, d_v=8)
    score = scored(score, 8)
    with in_blocks(pairs=4 * s * lead, block=8):
        for size, name in largest(lambda *x: sl.attention(*x, mask, score=score), q, k, v):
            assert size < t * s, name


@pytest.mark.parametrize("score", [None, "additive"])
def test_blocks_keep_nothing_of_t_by_s_for_the_backward_pass(score):
    q, k, v = (x.requires_grad_() for x in qkv(2, 1, t=71, s=73, d=8, d_v=8))
    score, kept = scored(score, 8), {}

    def keep(x):
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes() // x.element_size()
        return x

    mask = masks.padding([70, 29]) & masks.window(None, 60)
    with in_blocks(pairs=4 * 73 * 2, block=8), torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        sl.attention(q, k, v, mask, score=score)
    for x in (q, k, v):
        kept.pop(x.untyped_storage().data_ptr(), None)
    assert sum(kept.values()) < 71 * 73


def test_a_window_costs_its_width_and_not_the_length():
    q, k, v = qkv(1, 1, t=211, s=211, d=8, d_v=8)
    with in_blocks(block=8), torch.no_grad(), created() as seen:
        sl.attention(q, k, v, masks.window(4, 4))
    assert max(size for size, name in seen if "arange" in name) <= 8 + 4 + 4


def test_the_trace_would_see_it():
    q, k, v = qkv(2, 3, t=101, s=101, d=8, d_v=8)
    assert min(largest(lambda *x: sl.reference.scaled_dot_product_attention(*x)[0], q, k, v))[0] >= 101 * 101


PEAK = """
import resource, sys, torch
import sightline as sl

torch.set_num_threads(1)  # each has memory of its own

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def inputs(t):
    return [torch.randn(1, 1, t, 64) for _ in range(3)]

with torch.no_grad():
    sl.attention(*inputs(64), sl.masks.causal())
    q, k, v = inputs(16_384)
    before = peak()
    sl.attention(q, k, v, sl.masks.causal())
print(peak() - before)
"""


@pytest.mark.plain  # long, and its shapes are others' too
def test_causal_attention_over_16384_positions_stays_under_200_megabytes():
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)  # noqa: S603
    assert int(done.stdout) < 200e6  # the weights alone would be 1.07 GB


@pytest.mark.parametrize("mask", [None, masks.causal(), masks.padding([13, 7])])
def test_columns_that_lie_apart_do_not_cost_the_fused_kernel(mask):
    q = torch.randn(2, 3, 8, 13).transpose(-1, -2)  # torch would build the whole matrix for these
    calls = []
    with FusedCallRecorder(calls.append):
        output = sl.attention(q, q, q, mask)
    assert len(calls) == 1
    torch.testing.assert_close(output, sl.attention(*(q.contiguous(),) * 3, mask))


def test_values_of_another_width_do_not_cost_the_fused_kernel():
    q, v = torch.randn(1, 1, 257, 5), torch.randn(1, 1, 257, 7)  # torch would build the matrix of these, too
    calls = []
    with FusedCallRecorder(calls.append):
        output = sl.attention(q, q, v, scale=0.3)
    assert len(calls) == 1
    assert output.shape == v.shape
    torch.testing.assert_close(output, (0.3 * q @ q.mT).softmax(-1) @ v)
