"""When the values of a mask are read, and when not."""

import warnings

import pytest
import torch

import sightline as sl
from sightline.attention import mask_values
from sightline.attention.mask_values import (
    check_not_binary,
    refuse_marks,
    warn_if_binary,
    warn_of_hidden_rows,
    warn_of_padding,
)

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
    """As they are: nothing refuses them, warns of them or changes them."""
    q, k, v = (torch.randn(n, 3, device=bias.device) for n in (len(bias), S, S))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_binary(bias, "attn_mask")
        found = sl.attention(q, k, v, bias)
    assert found.shape == (len(bias), 3)
    if not found.is_meta:
        expected = (q @ k.mT / 3**0.5 + bias).softmax(-1) @ v
        torch.testing.assert_close(found, expected, equal_nan=True)


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
        warn_if_binary(mask, "attn_mask")


def test_the_warning_names_both_ways_to_hide():
    marks = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    with pytest.warns(
        UserWarning, match="key_padding_mask == 0 hides the zeros, key_padding_mask == 1 the ones"
    ):
        warn_if_binary(marks, "key_padding_mask")


@pytest.mark.bad_input
def test_values_are_read_again_after_a_change_in_place():
    mask = torch.zeros(T, S)
    check_not_binary(mask)
    mask[2, 3] = 1
    with pytest.raises(ValueError, match="ones and zeros"):
        check_not_binary(mask)


def test_the_same_values_are_read_once(monkeypatch):
    calls = []
    rule = mask_values._NO_HIDDEN_ROWS._replace(judge=calls.append)
    monkeypatch.setattr(mask_values, "_NO_HIDDEN_ROWS", rule)
    mask = torch.rand(T, S) > 2
    for _ in range(3):
        warn_of_hidden_rows(mask, "attn_mask")
    assert calls == [[False]]
    warn_of_hidden_rows(mask.clone(), "attn_mask")
    assert len(calls) == 2


def test_nothing_of_a_mask_is_kept_after_it():
    mask = torch.zeros(T, S)
    check_not_binary(mask)
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
    with pytest.warns(UserWarning, match=r"key_padding_mask hides every key of a row"):
        warn_of_hidden_rows(hidden, "key_padding_mask")


def test_padding_at_the_beginning_of_every_row_is_warned_of():
    real = torch.arange(S) < torch.tensor([[3], [5], [1]])  # padded to a longer S, and of the wrong polarity
    with pytest.warns(UserWarning, match=r"hides the first key of every row and shows the last.*~key_"):
        warn_of_padding(real, "key_padding_mask")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_padding(~real, "key_padding_mask")
        warn_of_padding(real.flip(1), "key_padding_mask")
        warn_of_padding(torch.tensor([[True, False, False], [False] * 3]), "key_padding_mask")
        warn_of_padding(torch.tensor([[False], [False]]), "key_padding_mask")


@pytest.mark.bad_input
def test_marks_are_no_lengths():
    for marks in (torch.ones(2, S).long(), (torch.arange(S) < 3).expand(2, S).int()):
        with pytest.raises(
            ValueError, match=r"got torch.int.. \(2, 7\) of ones and zeros; .*from_ones\(marks"
        ):
            sl.masks.padding(marks)
    refuse_marks(torch.tensor([1, 1, 0]))
    refuse_marks(torch.tensor([[1, 2], [0, 1]]))
    refuse_marks(torch.zeros(2, 3, dtype=torch.long))


@pytest.mark.bad_input  # the shape hook has frames of its own
@pytest.mark.parametrize(
    "call",
    [
        lambda x, m: sl.nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x, attn_mask=m),
        lambda x, m: sl.nn.TransformerEncoderLayer(8, 2, 9, batch_first=True)(x, src_mask=m),
        lambda x, m: encoder()(x, mask=m),
        lambda x, m: transformer()(x, x, memory_mask=m),
    ],
)
def test_a_warning_points_at_the_callers_line(call):
    x, mask = torch.randn(2, T, 8), torch.tril(torch.ones(T, T))
    with pytest.warns(UserWarning, match="^attn_mask holds only ones and zeros") as caught:
        call(x, mask)
    assert [one.filename for one in caught] == [__file__]
    assert caught[0].lineno == call.__code__.co_firstlineno


def encoder():
    return sl.nn.TransformerEncoder(sl.nn.TransformerEncoderLayer(8, 2, 9, batch_first=True), 2)


def transformer():
    return sl.nn.Transformer(8, 2, 1, 1, 9, batch_first=True)


@pytest.mark.bad_input
def test_a_line_is_warned_of_once_whatever_the_shapes():
    layer = sl.nn.MultiheadAttention(8, 2, batch_first=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for t in (3, 5, 7):
            x = torch.randn(2, t, 8)
            layer(x, x, x, attn_mask=torch.tril(torch.ones(t, t)))
    assert len(caught) == 1


def test_what_arrives_from_a_gpu_and_needs_a_closer_look_is_summed_up_again(monkeypatch):
    sent = []
    monkeypatch.setattr(mask_values, "_send", lambda rule, *rest: sent.append((rule, *rest)))
    monkeypatch.setattr(mask_values, "_pending", mask_values.deque())
    mask, name = torch.eye(T, S), "attn_mask"

    class Arrived:
        query = staticmethod(lambda: True)

    def arrive(rule, *summary):
        one = mask_values._Pending(Arrived, torch.tensor(summary), rule, mask, mask._version, name)
        mask_values._pending.append(one)
        mask_values._collect()

    arrive(mask_values._NO_ONES, -1.0, 1.0)
    assert sent == []
    arrive(mask_values._NO_ONES, 0.0, 1.0)  # the mask itself is not read here: that would wait for the device
    ((rule, *rest),) = sent
    assert rest == [mask, mask._version, name]
    assert rule.summary(mask).tolist() == [True]
    arrive(rule, False)
    with pytest.raises(ValueError, match="an earlier call: a float mask"):
        arrive(rule, True)
    assert len(sent) == 1


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

    def call_and_collect():
        sl.attention(q, q, q, mask)
        while not mask_values._pending[0].event.query():
            pass
        mask_values._collect()  # nor does the closer look, whose answer may be there at once

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it does not see all
        torch.cuda.set_sync_debug_mode("error")
    said = ""
    try:
        call_and_collect()
    except ValueError as problem:
        said = str(problem)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    if not said:
        with pytest.raises(ValueError, match="an earlier call") as raised:
            sl.attention(q, q, q, good.clone())
        said = str(raised.value)
    assert said.startswith("an earlier call: a float mask")
    sl.attention(q, q, q, good.clone())
    torch.cuda.synchronize()
    sl.attention(q, q, q, good.clone())
    assert len(mask_values._pending) <= 1
