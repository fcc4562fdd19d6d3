import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import sightline as sl
from sightline import shapes


def zeros(*shape):
    return torch.zeros(*shape, device="meta")


Q, K = zeros(5, 3), zeros(7, 3)


@pytest.mark.parametrize(
    ("names", "expected"),
    [("k", "k (2, 7)"), ("kv", "k (2, 7) and v (2, 7)"), ("qkv", "q (2, 7), k (2, 7) and v (2, 7)")],
)
def test_shapes_are_listed_as_in_a_sentence(names, expected):
    assert shapes.shown(**{name: zeros(2, 7) for name in names}) == expected


def test_a_near_name_is_offered_and_a_far_one_is_not():
    assert shapes.did_you_mean("cosin", ["dot", "cosine"]).endswith("; did you mean 'cosine'?")
    assert shapes.did_you_mean("xyzzy", ["dot", "cosine"]) == "expected one of 'cosine', 'dot'"
    assert shapes.did_you_mean(7, ["dot"]) == "expected one of 'dot'"


@pytest.mark.parametrize(
    ("q", "k", "v", "grouped"),
    [
        ((2, 6, 5, 3), (2, 3, 7, 3), (2, 3, 7, 3), True),
        ((2, 6, 5, 3), (1, 2, 7, 3), (2, 2, 7, 3), True),
        ((2, 6, 5, 3), (2, 6, 7, 3), (2, 6, 7, 3), False),
        ((2, 6, 5, 3), (2, 1, 7, 3), (2, 1, 7, 3), False),  # broadcasting does that
        ((2, 6, 5, 3), (2, 4, 7, 3), (2, 4, 7, 3), False),
        ((2, 6, 5, 3), (2, 3, 7, 3), (2, 1, 7, 3), False),
        ((2, 3, 5, 3), (2, 6, 7, 3), (2, 6, 7, 3), False),
        ((6, 5, 3), (3, 7, 3), (3, 7, 3), False),
    ],
)
def test_grouped_heads(q, k, v, grouped):
    assert shapes.is_grouped(zeros(*q), zeros(*k), zeros(*v)) is grouped


def test_leading_dimensions_of_grouped_heads_are_those_of_q():
    assert shapes.leading(zeros(1, 6, 5, 3), zeros(2, 3, 7, 3), zeros(2, 3, 7, 3)) == (2, 6)


@settings(max_examples=30, derandomize=True)
@given(
    full=st.lists(st.sampled_from([2, 3, 5]), max_size=3),
    ones=st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=3, max_size=3),
    ranks=st.lists(st.integers(0, 3), min_size=3, max_size=3),
)
def test_leading_dimensions_broadcast_as_torch_says(full, ones, ranks):
    tensors = []
    for one, rank in zip(ones, ranks, strict=True):
        lead = [1 if flat else n for flat, n in zip(one, full, strict=False)]
        tensors.append(zeros(*lead[max(0, len(lead) - rank) :], 7, 11))
    if shapes.is_grouped(*tensors):
        return
    expected = torch.broadcast_shapes(*(x.shape[:-2] for x in tensors))
    assert shapes.leading(*tensors) == tuple(expected)


def test_under_autocast_dtypes_may_differ():
    q, k = torch.zeros(5, 3), torch.zeros(7, 3)
    with torch.autocast("cpu", torch.bfloat16):
        shapes.check_qkv(q, k.bfloat16(), k)
        with pytest.raises(
            TypeError, match=r"same dtype, got torch\.float32, torch\.float32 and torch\.float64"
        ):
            shapes.check_qkv(q, k, k.double())  # which autocast leaves alone
        shapes.check_qkv(q.double(), k.double(), k.double())


def test_of_float64_under_autocast_ours_is_said_and_not_torchs():
    q, v, x = torch.ones(5, 3), torch.ones(5, 3).double(), torch.ones(2, 5, 3)
    single = sl.nn.SelfAttention(3, 2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        for call in (
            lambda: sl.attention(q, q, v),
            lambda: sl.look(q, q, v),
            lambda: sl.attention(q.double(), q, q),
            lambda: sl.attention(q, q, q, score=sl.scores.General(3, 3).double()),
            lambda: single(x.double()),
        ):
            with pytest.raises(TypeError, match=r"must (have the|share one) (same )?dtype"):
                call()
        assert sl.attention(v, v, v).dtype == sl.look(v, v, v).output.dtype == torch.float64
        assert single(x).dtype == torch.bfloat16


def test_float8_is_refused_in_a_sentence():
    q = torch.ones(5, 3)
    for stored in (torch.float8_e4m3fn, torch.float8_e5m2):
        for call in (sl.attention, sl.look):
            with pytest.raises(
                TypeError, match=r"v must be a float tensor of 16 bits or more, got torch\.float8"
            ):
                call(q, q, q.to(stored))
        with pytest.raises(TypeError, match="a bias must be a float tensor"):
            sl.masks.bias(torch.zeros(5, 5).to(stored))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("q", "k", "v", "error", "words"),
    [
        ([1.0], K, K, TypeError, r"q must be a torch.Tensor, got list; torch.as_tensor\(q\) makes one"),
        (Q, K, None, TypeError, "v must be a torch.Tensor, got NoneType"),
        (Q, zeros(3), K, ValueError, r"k of shape \(3,\); k\[None\] adds a dimension"),
        (Q.int(), K, K, TypeError, r"q must be a float tensor, got torch.int32; q.float\(\)"),
        (Q, K, K.bool(), TypeError, "v must be a float tensor, got torch.bool"),
        (Q, K.cfloat(), K, TypeError, "k must be a float tensor, got torch.complex64"),
        (Q.half(), K, K.double(), TypeError, "got torch.float16, torch.float32 and torch.float64; convert"),
        (torch.zeros(5, 3), K, K, ValueError, "same device, got cpu, meta and meta; move"),
        (Q, K, zeros(6, 3), ValueError, r"S=7 for k \(7, 3\) and S=6 for v \(6, 3\)"),
    ],
)
def test_what_can_not_belong_together(q, k, v, error, words):
    with pytest.raises(error, match=words):
        shapes.check_qkv(q, k, v)


@pytest.mark.bad_input
def test_widths_without_a_dot_product():
    with pytest.raises(ValueError, match=r"D=3 and D=2 for q \(5, 3\) and k \(7, 2\); sl.scores.General"):
        shapes.check_same_width(zeros(5, 3), zeros(7, 2))
    with pytest.raises(ValueError, match=r"at least 1 wide, got D=0 for q \(5, 0\) and k \(7, 0\)"):
        shapes.check_same_width(zeros(5, 0), zeros(7, 0))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("q", "k"), [((2, 5, 7, 3), (2, 3, 7, 3)), ((2, 7, 3), (5, 7, 3)), ((6, 7, 3), (3, 7, 3))]
)
def test_leading_dimensions_that_do_not_broadcast(q, k):
    with pytest.raises(ValueError, match="must broadcast, or with four dimensions") as caught:
        shapes.leading(zeros(*q), zeros(*k), zeros(*k))
    assert f"q {q}, k {k} and v {k}" in str(caught.value)
