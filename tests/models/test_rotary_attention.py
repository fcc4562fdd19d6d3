from types import SimpleNamespace

import pytest
import torch

from sightline.layers import TransformerEncoder, TransformerEncoderLayer
from sightline.models.rotary_attention import Rotary2d, RotaryAttention, rotate_self_attention
from sightline.positions import Rotary

ROWS, COLUMNS, D = 3, 5, 8


def test_half_of_a_head_is_turned_by_the_row_and_half_by_the_column():
    q, k = torch.randn(2, 7, 2, ROWS * COLUMNS, D, dtype=torch.double).unbind(0)
    turn = Rotary(D // 2, base=100)
    places = torch.arange(ROWS * COLUMNS)
    found = Rotary2d(D, (ROWS, COLUMNS)).double()(q, k)
    for x, turned in zip((q, k), found, strict=True):
        by_row = turn.rotate(x[..., : D // 2], positions=places // COLUMNS)
        by_column = turn.rotate(x[..., D // 2 :], positions=places % COLUMNS)
        expected = torch.cat([by_row, by_column], -1)
        torch.testing.assert_close(turned, expected, atol=1e-6, rtol=1e-6)


def test_a_stack_that_rotates_keeps_torchs_names_and_tells_places_apart():
    layer = TransformerEncoderLayer(2 * D, 2, 17, 0.0, batch_first=True, norm_first=True)
    stack = TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    names, x = list(stack.state_dict()), torch.randn(1, ROWS * COLUMNS, 2 * D)
    order = torch.randperm(ROWS * COLUMNS)
    torch.testing.assert_close(stack(x)[:, order], stack(x[:, order]))  # without positions
    rotate_self_attention(stack, Rotary2d(D, (ROWS, COLUMNS)))
    assert list(stack.state_dict()) == names
    assert (stack(x)[:, order] - stack(x[:, order])).abs().max() > 1e-3


@pytest.mark.bad_input
def test_what_rotary_refuses():
    with pytest.raises(ValueError, match="multiple of 4, got 6"):
        Rotary2d(6, (2, 2))
    attend, x = RotaryAttention(8, 2, 0.0, Rotary(4)), torch.zeros(1, 3, 8)
    with pytest.raises(ValueError, match="hands out no weights"):
        attend(x, x, x)


@pytest.mark.plain  # by a stand-in
def test_a_layer_that_rotates_never_goes_to_torchs_inference_kernel():
    layer = TransformerEncoderLayer(2 * D, 2, 17, batch_first=True, norm_first=True)
    stack = TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    on_a_gpu = SimpleNamespace(is_cuda=True)
    with torch.no_grad():
        assert stack.layers[0]._has_inference_kernel(on_a_gpu, None, None)
        rotate_self_attention(stack, Rotary(D))
        assert not stack.layers[0]._has_inference_kernel(on_a_gpu, None, None)
