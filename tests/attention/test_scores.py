import copy
import math

import pytest
import torch
import torch.nn.functional as F

import sightline as sl
from sightline.attention.scores import named

# name -> (how to build it, the score of one pair as the lecture notes write it)
SCORES = {
    "dot": (sl.scores.Dot, lambda _, s, h: s @ h),
    "scaled_dot": (sl.scores.ScaledDot, lambda _, s, h: s @ h / math.sqrt(len(s))),
    "cosine": (sl.scores.Cosine, lambda _, s, h: s @ h / (s.norm() * h.norm())),
    "general": (lambda: sl.scores.General(3, 3), lambda m, s, h: s @ m.W @ h),
    "general_wide": (lambda: sl.scores.General(3, 2), lambda m, s, h: s @ m.W @ h),
    "low_rank": (lambda: sl.scores.LowRank(3, 2, rank=5), lambda m, s, h: (m.U @ s) @ (m.V @ h)),
    "additive": (
        lambda: sl.scores.Additive(3, 2, d_attn=11),
        lambda m, s, h: m.v @ torch.tanh(m.W @ h + m.V @ s),
    ),
}
WIDTH_OF_KEYS = {"general_wide": 2, "low_rank": 2, "additive": 2}


@pytest.fixture(params=SCORES)
def case(request):
    """A score in float64, queries (2, 5, 3), keys (2, 7, d_k), and the formula of one pair."""
    build, formula = SCORES[request.param]
    q = torch.randn(2, 5, 3, dtype=torch.float64)
    k = torch.randn(2, 7, WIDTH_OF_KEYS.get(request.param, 3), dtype=torch.float64)
    return build().double(), q, k, formula


def test_each_is_its_formula(case):
    score, q, k, formula = case
    expected = torch.stack(
        [torch.stack([torch.stack([formula(score, s, h) for h in keys]) for s in queries])
         for queries, keys in zip(q, k, strict=True)]
    )  # fmt: skip
    found = score(q, k)
    assert found.shape == (2, 5, 7)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_each_trains(case):
    score, q, k, _ = case
    names = [name for name, _ in score.named_parameters()]

    def of(q, k, *parameters):
        return torch.func.functional_call(score, dict(zip(names, parameters, strict=True)), (q, k))

    inputs = [
        q.requires_grad_(),
        k.requires_grad_(),
        *(p.detach().clone().requires_grad_() for p in score.parameters()),
    ]
    assert torch.autograd.gradcheck(of, inputs)


def test_as_dot_says_the_same(case):
    score, q, k, _ = case
    dot = score.as_dot(q, k)
    if dot is None:
        assert isinstance(score, sl.scores.Additive)
        return
    mapped_q, mapped_k, scale = dot
    torch.testing.assert_close(mapped_q @ mapped_k.mT * scale, score(q, k), rtol=0, atol=1e-12)


def test_leading_dimensions_broadcast(case):
    score, q, k, _ = case
    wide = score(q[:, None], k[None, :1])  # (2, 1, 5, d_q) and (1, 1, 7, d_k)
    assert wide.shape == (2, 1, 5, 7)
    torch.testing.assert_close(wide[1, 0], score(q[1], k[0]), rtol=0, atol=1e-12)


def test_a_score_is_a_module_that_saves_and_copies(case):
    score, q, k, _ = case
    twin = copy.deepcopy(score)
    for parameter in twin.parameters():
        torch.nn.init.zeros_(parameter)
    twin.load_state_dict(score.state_dict())
    assert torch.equal(twin(q, k), score(q, k))


def test_shapes_of_the_parameters_are_those_of_the_notes():
    assert {n: tuple(p.shape) for n, p in sl.scores.General(3, 2).named_parameters()} == {"W": (3, 2)}
    low_rank = sl.scores.LowRank(3, 2, rank=5)
    assert {n: tuple(p.shape) for n, p in low_rank.named_parameters()} == {"U": (5, 3), "V": (5, 2)}
    additive = sl.scores.Additive(3, 2, d_attn=11)
    expected = {"W": (11, 2), "V": (11, 3), "v": (11,)}
    assert {n: tuple(p.shape) for n, p in additive.named_parameters()} == expected


def test_new_parameters_are_small_and_not_alike():
    for build in (lambda: sl.scores.General(37, 41), lambda: sl.scores.Additive(37, 41, 43)):
        one, two = build(), build()
        for a, b in zip(one.parameters(), two.parameters(), strict=True):
            assert not torch.equal(a, b)
            assert 0 < a.abs().max() < 1


def test_a_zero_vector_has_cosine_zero_and_a_finite_gradient():
    q = torch.zeros(5, 3, requires_grad=True)
    scores = sl.scores.Cosine()(q, torch.randn(7, 3))
    assert (scores == 0).all()
    scores.sum().backward()
    assert q.grad.isfinite().all()


def test_cosine_is_that_of_torch():
    q, k = torch.randn(5, 3), torch.randn(7, 3)
    torch.testing.assert_close(sl.scores.Cosine()(q, k), F.cosine_similarity(q[:, None], k[None], dim=-1))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("dot", sl.scores.Dot), ("scaled_dot", sl.scores.ScaledDot), ("cosine", sl.scores.Cosine)],
)
def test_names(name, kind):
    assert type(named(name)) is kind
    instance = kind()
    assert named(instance) is instance


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("score", "error", "words"),
    [
        ("dott", ValueError, "unknown score 'dott', expected one of 'additive', .*; did you mean 'dot'"),
        ("scaled-dot", ValueError, "unknown score 'scaled-dot', .*; did you mean 'scaled_dot'"),
        ("", ValueError, "unknown score ''"),
        ("general", ValueError, r"'general' has parameters .* sl.scores.General\(d_q, d_k\), and pass that"),
        ("low_rank", ValueError, r"'low_rank' has parameters .* sl.scores.LowRank\(d_q, d_k, rank\)"),
        ("additive", ValueError, r"'additive' has parameters .* sl.scores.Additive\(d_q, d_k, d_attn\)"),
        (7, TypeError, r"got int; sl.scores.Dot\(\) is an instance"),
        (sl.scores.Cosine, TypeError, "got the class Cosine; "),
        (torch.nn.Linear(3, 2), TypeError, "got Linear; .* your own derives from sl.scores.Score"),
    ],
)
def test_scores_that_can_not_be_had(score, error, words):
    with pytest.raises(error, match=words):
        named(score)


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["dot", "scaled_dot", "cosine"])
def test_widths_without_a_dot_product(name):
    with pytest.raises(ValueError, match=r"D=3 and D=2 for q \(5, 3\) and k \(7, 2\); sl.scores.General"):
        named(name)(torch.ones(5, 3), torch.ones(7, 2))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "score", [sl.scores.General(3, 2), sl.scores.LowRank(3, 2, 5), sl.scores.Additive(3, 2, 5)]
)
@pytest.mark.parametrize(("d_q", "d_k"), [(3, 3), (2, 3), (2, 2)])
def test_widths_a_score_was_not_built_for(score, d_q, d_k):
    words = rf"d_q=3 and d_k=2, got widths {d_q} and {d_k} for q \(5, {d_q}\) and k \(7, {d_k}\); build it"
    with pytest.raises(ValueError, match=words):
        score(torch.ones(5, d_q), torch.ones(7, d_k))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "score", [sl.scores.General(3, 2), sl.scores.LowRank(3, 2, 5), sl.scores.Additive(3, 2, 5)]
)
def test_dtypes_and_devices_a_score_was_not_built_for(score):
    q, k = torch.ones(5, 3), torch.ones(7, 2)
    with pytest.raises(TypeError, match=r"q torch.float64 .* parameters torch.float32 on cpu; score.to\(q\)"):
        score(q.double(), k.double())
    with pytest.raises(TypeError, match=r"q torch.float32 on cpu, k torch.float16 on cpu"):
        score(q, k.half())
    with pytest.raises(TypeError, match=r"q torch.float32 on meta, .* and parameters torch.float32 on cpu"):
        score(q.to("meta"), k.to("meta"))
    assert score.to(q.double())(q.double(), k.double()).dtype == torch.float64  # the remedy
    score.to(q)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: sl.scores.General(3, 0), "at least 1, got 0"),
        (lambda: sl.scores.LowRank(3, 2, 0), "at least 1, got 0"),
        (lambda: sl.scores.Additive(-3, 2, 5), "at least 1, got -3"),
    ],
)
def test_widths_below_one(build, words):
    with pytest.raises(ValueError, match=words):
        build()


@pytest.mark.bad_input
def test_a_score_must_say_how_it_scores():
    class Silent(sl.scores.Score):
        pass

    with pytest.raises(TypeError, match="forward"):
        Silent()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_cosine_of_a_zero_vector_is_zero_and_so_is_its_gradient(dtype):
    q = torch.zeros(2, 5, dtype=dtype, requires_grad=True)
    scores = sl.scores.Cosine()(q, torch.randn(3, 5).to(dtype))
    scores.sum().backward()
    assert not scores.any()
    assert not q.grad.any()


LENGTHS = {
    torch.float32: (1e-42, 1e-37, 1e-30, 1e-22, 1e-19, 1e18, 1e20, 3e37),
    torch.bfloat16: (1e-30, 1e-22, 1e20, 3e37),
    torch.float16: (1e-6, 1e4),
    torch.float64: (1e-300, 1e-170, 1e160, 1e300),
}
EXTREMES = [(dtype, length) for dtype, lengths in LENGTHS.items() for length in lengths]
TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-6, torch.float64: 1e-12}


def directions(dtype, length):
    """Queries and keys of one length, as they are in this dtype, and the same in float64 about one long."""
    rounded = [(torch.randn(2, n, 3, dtype=torch.float64) * length).to(dtype) for n in (5, 7)]
    return rounded, [x.double() / length for x in rounded]


@pytest.mark.parametrize(("dtype", "length"), EXTREMES)
def test_a_cosine_does_not_depend_on_how_long_the_vectors_are(dtype, length):
    (q, k), (unit_q, unit_k) = directions(dtype, length)
    v = torch.randn(2, 7, 2).to(dtype)
    expected = F.cosine_similarity(unit_q[:, :, None], unit_k[:, None], dim=-1, eps=1e-30)
    weights = expected.softmax(-1)
    close = {"rtol": 0, "atol": TOLERANCES[dtype]}
    torch.testing.assert_close(sl.scores.Cosine()(q, k).double(), expected, **close)
    attended = sl.attention(q, k, v, score="cosine")
    torch.testing.assert_close(attended.double(), weights @ v.double(), **close)
    sight = sl.look(q, k, v, score="cosine")
    assert torch.equal(sight.output, attended)
    torch.testing.assert_close(sight.received.double(), weights.sum(-2), **close)


@pytest.mark.parametrize(
    ("dtype", "length"), [(d, n) for d, n in EXTREMES if d != torch.float16 and n != 1e-42]
)
def test_the_gradient_of_a_cosine_is_as_long_as_the_vectors_are_short(dtype, length):
    (q, k), (unit_q, unit_k) = directions(dtype, length)
    q.requires_grad_()
    unit_q.requires_grad_()
    sl.scores.Cosine()(q, k).sum().backward()
    F.cosine_similarity(unit_q[:, :, None], unit_k[:, None], dim=-1, eps=1e-30).sum().backward()
    close = {"rtol": 0, "atol": 8 * TOLERANCES[dtype] * unit_q.grad.abs().max().item()}
    torch.testing.assert_close(q.grad.double() * length, unit_q.grad, **close)


def test_short_vectors_among_zeros_and_long_ones_have_their_own_gradients():
    q = torch.tensor([[0.0, 0.0], [3e-25, 4e-25], [3e25, 4e25]], requires_grad=True)
    k = torch.tensor([[0.0, 7e-31], [0.0, 0.0]])
    scores = sl.scores.Cosine()(q, k)
    torch.testing.assert_close(scores, torch.tensor([[0.0, 0.0], [0.8, 0.0], [0.8, 0.0]]))
    scores.sum().backward()
    expected = torch.tensor([[0.0, 0.0], [-0.48 / 5e-25, 0.36 / 5e-25], [-0.48 / 5e25, 0.36 / 5e25]])
    torch.testing.assert_close(q.grad, expected, rtol=1e-5, atol=0)
