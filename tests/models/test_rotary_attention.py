from types import SimpleNamespace

import pytest
import torch

from sightline.layers import TransformerEncoder, TransformerEncoderLayer
from sightline.models.rotary_attention import (
    BiasedAttention,
    Rotary2d,
    RotaryAttention,
    bias_self_attention,
    rotate_self_attention,
)
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


def test_biases_are_added_to_the_scores_of_torchs_own_attention():
    attend, x = BiasedAttention(2 * D, 2, 0.0, (ROWS, COLUMNS)), torch.randn(7, ROWS * COLUMNS, 2 * D)
    torch.nn.init.normal_(attend.relative.table)
    theirs = torch.nn.MultiheadAttention(2 * D, 2, batch_first=True)
    theirs.load_state_dict(attend.state_dict(), strict=False)
    padding = torch.arange(ROWS * COLUMNS) >= torch.tensor([[11], [5], [15], [1], [9], [8], [2]])
    bias = attend.relative().detach()
    for hidden in (None, padding):
        found, _ = attend(x, x, x, need_weights=False, key_padding_mask=hidden)
        hides = None if hidden is None else hidden.float().masked_fill(hidden, -torch.inf)
        expected, _ = theirs(x, x, x, attn_mask=bias.repeat(7, 1, 1), key_padding_mask=hides)
        torch.testing.assert_close(found, expected)
    few, _ = attend(x[:2], x[:2], x[:2], need_weights=False)  # as many as heads
    torch.testing.assert_close(few, attend(x, x, x, need_weights=False)[0][:2])


def test_a_stack_with_biases_has_a_table_for_each_layer():
    layer = TransformerEncoderLayer(2 * D, 2, 17, 0.0, batch_first=True, norm_first=True)
    stack = TransformerEncoder(layer, 2, enable_nested_tensor=False)
    bias_self_attention(stack, (ROWS, COLUMNS))
    stack(torch.randn(1, ROWS * COLUMNS, 2 * D)).sum().backward()
    tables = [layer.self_attn.relative.table for layer in stack.layers]
    assert tables[0] is not tables[1]
    assert all(table.grad.abs().sum() > 0 for table in tables)


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
