"""When the values of a mask are read, and when not."""

import warnings

import pytest
import torch

import sightline as sl
from sightline.attention import mask_values
from sightline.attention.mask_values import refuse_ones, warn_of_hidden_rows, warn_of_ones

T, S = 5, 7


@pytest.mark.parametrize(
    "bias",
    [
        torch.zeros(T, S),
        torch.ones(T, S),
        torch.zeros(T, S).masked_fill(torch.arange(T * S).view(T, S) % 3 == 1, -torch.inf),
        torch.tril(torch.ones(T, S)) * 0.5,
        torch.tril(torch.ones(T, S)) * 2,
        torch.tril(torch.ones(T, S)) - 1,
        torch.eye(T, S).index_fill(0, torch.tensor([2]), 0.5),
        torch.full((T, S), torch.nan),
        torch.zeros(0, S),
        torch.eye(T, S).requires_grad_(),
        torch.eye(T, S, device="meta"),
    ],
    ids=lambda x: f"{x.device.type} {x.flatten()[:9].tolist() if x.device.type == 'cpu' else ''}",
)
def test_other_biases_are_taken(bias):
    refuse_ones(bias)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_ones(bias, "attn_mask")


@pytest.mark.bad_input
def test_the_sentence_names_both_ways_out():
    sentence = r"only ones and zeros .* got torch.float32 \(5, 7\); sl.masks.from_ones.*sl.masks.bias\(mask\)"
    mask = torch.eye(T, S)
    q, k, v = torch.randn(T, 3), torch.randn(S, 3), torch.randn(S, 2)
    for _ in range(2):  # the second time as well
        with pytest.raises(ValueError, match=sentence):
            sl.attention(q, k, v, mask)


@pytest.mark.bad_input
def test_a_frozen_parameter_is_read_as_any_tensor():
    mask = torch.nn.Parameter(torch.tril(torch.ones(T, T)), requires_grad=False)
    q = torch.randn(T, 3)
    with pytest.raises(ValueError, match="only ones and zeros"):
        sl.attention(q, q, q, mask)
    with pytest.raises(ValueError, match="only ones and zeros"):
        sl.attention(*[q[None, None]] * 3, torch.nn.Parameter(mask[None, None], requires_grad=False))
    with pytest.warns(UserWarning, match="attn_mask .*holds only ones and zeros"):
        warn_of_ones(mask, "attn_mask")


def test_the_warning_names_both_ways_to_hide():
    marks = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    with pytest.warns(
        UserWarning, match="key_padding_mask == 0 hides the zeros, key_padding_mask == 1 the ones"
    ):
        warn_of_ones(marks, "key_padding_mask")


@pytest.mark.bad_input
def test_values_are_read_again_after_a_change_in_place():
    mask = torch.zeros(T, S)
    refuse_ones(mask)
    mask[2, 3] = 1
    with pytest.raises(ValueError, match="ones and zeros"):
        refuse_ones(mask)


def test_the_same_values_are_read_once(monkeypatch):
    calls = []
    rule = mask_values._NO_HIDDEN_ROWS._replace(fails=lambda _, mask: bool(calls.append(mask.shape)))
    monkeypatch.setattr(mask_values, "_NO_HIDDEN_ROWS", rule)
    mask = torch.rand(T, S) > 2
    for _ in range(3):
        warn_of_hidden_rows(mask, "attn_mask")
    assert calls == [(T, S)]
    warn_of_hidden_rows(mask.clone(), "attn_mask")
    assert len(calls) == 2


def test_nothing_of_a_mask_is_kept_after_it():
    mask = torch.zeros(T, S)
    refuse_ones(mask)
    key = id(mask)
    assert key in mask_values._tested
    del mask
    assert key not in mask_values._tested


def test_a_row_that_is_hidden_is_warned_of_and_others_are_not():
    hidden = torch.zeros(2, S, dtype=torch.bool)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_hidden_rows(hidden, "key_padding_mask")
    hidden[1] = True
    with pytest.warns(UserWarning, match=r"key_padding_mask \(2, 7\) hides every key of a row"):
        warn_of_hidden_rows(hidden, "key_padding_mask")


def test_on_a_gpu_warnings_are_for_the_first_masks_and_then_for_some(monkeypatch):
    monkeypatch.setattr(mask_values, "_counts", mask_values.Counter())
    due = [mask_values._is_due(mask_values._NO_HIDDEN_ROWS) for _ in range(640)]
    assert all(due[:32])
    assert sum(due[32:]) == 9  # of 64, 128, ..., 576
    assert mask_values._is_due(mask_values._ONES_AS_IN_TORCH)  # each rule counts for itself


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_sentence_comes_with_a_later_call_and_no_call_waits():
    q = torch.randn(2, 3, T, 8, device="cuda")
    mask = torch.tril(torch.ones(T, T, device="cuda"))[None, None]
    good = torch.zeros(1, 1, T, T, device="cuda")
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it does not see all
        torch.cuda.set_sync_debug_mode("error")
    try:
        sl.attention(q, q, q, mask)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match="an earlier call: a float mask"):
        sl.attention(q, q, q, good)
    sl.attention(q, q, q, good.clone())
    torch.cuda.synchronize()
    sl.attention(q, q, q, good.clone())
    assert len(mask_values._pending) <= 1
