"""Where a drop-in could differ from torch without anybody noticing: dice, and second derivatives."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

import sightline as sl

pytestmark = pytest.mark.plain

E, H, B, T, S = 12, 3, 2, 5, 7


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_the_same_seed_drops_the_same_weights(average, need_weights, batch_first):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(E, H, dropout=0.4, batch_first=batch_first)
    ours = sl.nn.MultiheadAttention(E, H, dropout=0.4, batch_first=batch_first)
    ours.load_state_dict(theirs.state_dict())
    query, memory = (torch.randn(*((B, n) if batch_first else (n, B)), E) for n in (T, S))
    results = []
    for module in (theirs, ours):
        torch.manual_seed(3)
        results.append(module(query, memory, memory, need_weights=need_weights, average_attn_weights=average))
    (y, w), (our_y, our_w) = results
    torch.testing.assert_close(our_y, y, rtol=1e-5, atol=1e-6)
    if need_weights:
        torch.testing.assert_close(our_w, w, rtol=1e-5, atol=1e-6)


MASKS = {
    "none": (None, {}),
    "causal": (sl.masks.causal(align="start"), {"is_causal": True}),
    "boolean": (torch.arange(S) != 3, {"attn_mask": (torch.arange(S) != 3).expand(T, S)}),
    "float": (torch.linspace(-1, 1, T * S).double().view(T, S), {}),
}


@pytest.mark.combinations
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's, of itself
@pytest.mark.parametrize("lead", [(), (B,), (B, 2, 2)], ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_second_and_forward_derivatives(name, lead):
    """With other than four dimensions torch has them, and so have we."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(*lead, n, 3, dtype=torch.float64, requires_grad=True) for n in (T, S, S))
    mask, options = MASKS[name]
    options = options or ({} if mask is None else {"attn_mask": mask})

    def attend(q, k, v):
        return sl.attention(q, k, v, mask)

    torch.testing.assert_close(attend(q, k, v), F.scaled_dot_product_attention(q, k, v, **options))
    fast = len(lead) > 1  # the whole matrix of derivatives, or where it is large its product with two vectors
    assert gradcheck(attend, (q, k, v), check_forward_ad=True, fast_mode=fast)
    assert gradgradcheck(attend, (q, k, v), fast_mode=fast)
