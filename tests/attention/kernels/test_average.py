"""The kernel that averages weights over the heads, against the equation."""

import pytest
import torch

from sightline.attention import averaged
from sightline.attention.masks import Mask, causal

average = pytest.importorskip("sightline.attention.kernels.average")  # needs triton
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(("d", "dtype"), [(24, torch.float16), (64, torch.float16), (5, torch.float32)])
def test_the_mean_over_the_heads(d, dtype):
    q = torch.randn(2, 131, 3, d, device=DEVICE).to(dtype).transpose(1, 2)  # as projections lie
    k = torch.randn(2, 3, 149, d, device=DEVICE).to(dtype)
    found = average.average_weights(q, k)
    expected = (q.double() @ k.double().mT * d**-0.5).softmax(-1).mean(1)
    assert found.dtype == dtype
    bound = 2e-3 if dtype == torch.float16 or DEVICE == "cuda" else 1e-6  # a GPU multiplies float32 coarsely
    torch.testing.assert_close(found.double(), expected, rtol=bound, atol=1e-5)


def test_scores_that_are_far_from_zero():
    q, k = (100 * torch.randn(1, 2, 17, 16, device=DEVICE).half() for _ in range(2))
    expected = (q.double() @ k.double().mT / 4).softmax(-1).mean(1)
    torch.testing.assert_close(average.average_weights(q, k).double(), expected, rtol=1e-2, atol=1e-2)


def test_it_is_taken_where_it_can_be(monkeypatch):
    """In half precision without a mask and without gradients; elsewhere the weights go in plain steps."""
    monkeypatch.setattr(averaged, "_SMALL", 0)
    monkeypatch.setattr(averaged, "_has_kernel", lambda q, _k: q.dtype == torch.float16)
    taken = []
    monkeypatch.setattr(
        average, "average_weights", lambda q, k: taken.append(q.shape) or (q @ k.mT).softmax(-1).mean(1)
    )
    q, k, v = (torch.randn(2, 3, 7, 4).half() for _ in range(3))
    averaged.attention_with_average(q, k, v, Mask())
    assert len(taken) == 1
    averaged.attention_with_average(q, k, v, causal())
    averaged.attention_with_average(q.float(), k.float(), v.float(), Mask())
    assert len(taken) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_large_inputs_on_a_gpu_go_by_it(dtype):
    q, k, v = (torch.randn(2, 1021, 8, 64, device="cuda", dtype=dtype).transpose(1, 2) for _ in range(3))
    output, found = averaged.attention_with_average(q, k, v, Mask())
    weights = (q.float() @ k.float().mT / 8).softmax(-1)
    torch.testing.assert_close(found.float(), weights.mean(1), rtol=1e-2, atol=1e-5)
    torch.testing.assert_close(output.float(), weights @ v.float(), rtol=2e-2, atol=2e-3)
