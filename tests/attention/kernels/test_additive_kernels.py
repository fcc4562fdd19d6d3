"""The kernels of additive attention against the equation in float64; compiled where there is a GPU."""

import pytest
import torch

import sightline as sl
from sightline.attention import attend
from sightline.attention.masks import Mask
from sightline.attention.softmax import masked_softmax
from tests.attention.created import created

pytest.importorskip("triton")
additive = pytest.importorskip("sightline.attention.kernels.additive")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# The interpreter knows no bfloat16.
HALF = [torch.float16, *([torch.bfloat16] if DEVICE.type == "cuda" else [])]
NAMES = ("output", "a", "b", "w", "values")


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def plain(a, b, w, values, mask, scale):
    """The equation, with all of the hidden layer."""
    t, s = a.size(-2), b.size(-2)
    scores = torch.tanh(a.unsqueeze(-2) + b.unsqueeze(-3)) @ w * scale
    return masked_softmax(scores, mask.block((0, t), (0, s), t, s, device=a.device)) @ values


def drawn(b=1, h=1, t=19, s=139, r=5, d=7, dtype=torch.float32, size=1.0):
    generator = torch.Generator().manual_seed(t * s + r)
    shapes = ((b, h, t, r), (b, h, s, r), (r,), (b, h, s, d))
    a, b, w, values = (torch.randn(shape, generator=generator).to(DEVICE, dtype) for shape in shapes)
    return a * size, b * size, w, values


def run(function, tensors, mask, scale, upstream):
    tensors = [x.detach().requires_grad_() for x in tensors]
    output = function(*tensors, mask, scale)
    return output.detach(), *torch.autograd.grad(output, tensors, upstream.to(output.dtype))


def errors(tensors, mask=None, scale=1.3):
    """Of the kernels and of the plain way in the same dtype, against float64."""
    a, b, _, values = tensors
    mask = (mask or Mask()).fitted(a.shape[:2], a.size(2), b.size(2))
    upstream = torch.randn(*a.shape[:3], values.size(3), dtype=torch.float64).to(DEVICE)
    exact = run(plain, [x.double() for x in tensors], mask, scale, upstream)
    for name, ours, theirs, truth in zip(
        NAMES,
        run(additive.additive_attention, tensors, mask, scale, upstream),
        run(plain, tensors, mask, scale, upstream),
        exact,
        strict=True,
    ):
        assert ours.dtype == theirs.dtype, name
        assert ours.shape == truth.shape, name
        size = truth.norm().clamp_min(1e-6)
        yield name, ((ours - truth).norm() / size).item(), ((theirs - truth).norm() / size).item()


def dense(t, s):
    allowed = torch.rand(1, 1, t, s, generator=torch.Generator().manual_seed(0)) > 0.5
    allowed[..., 3, :] = False  # this one looks at nothing
    return sl.masks.dense(allowed.to(DEVICE))


def bias(t, s):
    added = torch.randn(t, s, generator=torch.Generator().manual_seed(0))
    added[5, 7:] = -torch.inf
    return sl.masks.bias(added.to(DEVICE))


def padding(*lengths):
    return sl.masks.padding(torch.tensor(lengths, device=DEVICE))


MASKS = {
    "causal": ({"t": 131, "s": 19}, lambda: sl.masks.causal(align="start")),
    "cached": ({}, sl.masks.causal),
    "window": ({"t": 37}, lambda: sl.masks.window(20, 3)),
    "padding": ({"b": 3, "t": 17, "s": 41}, lambda: padding(41, 5, 0)),
    "dense": ({}, lambda: dense(19, 139)),
    "bias": ({}, lambda: bias(19, 139)),
    "all": (
        {"t": 37, "s": 41},
        lambda: sl.masks.causal() & sl.masks.window(11, None) & padding(37) & dense(37, 41) & bias(37, 41),
    ),
}


def test_it_is_the_equation():
    for name, ours, theirs in errors(drawn(b=2, h=1, r=13)):
        assert ours <= max(3 * theirs, 2e-6), name


@pytest.mark.parametrize("which", MASKS)
def test_masks(which):
    sizes, mask = MASKS[which]
    for name, ours, theirs in errors(drawn(**sizes), mask()):
        assert ours <= max(3 * theirs, 2e-6), name


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_is_better_than_the_plain_way(dtype):
    for name, ours, theirs in errors(drawn(dtype=dtype, d=37), sl.masks.causal()):
        assert ours <= 1.1 * theirs, name


@pytest.mark.parametrize("size", [8.0, 40.0])
def test_far_from_zero(size):
    """Where exponentials of a and of b leave float32, but a + b may still be anything."""
    a, b, w, values = drawn(t=17, s=29, size=size)
    a[..., 0], b[..., 0] = a[..., 0] + 100, b[..., 0] - 100
    for name, ours, theirs in errors((a, b, w, values)):
        assert ours <= max(5 * theirs, 5e-6), name


def test_only_the_head_that_is_far_goes_the_long_way():
    a, b, w, values = drawn(b=2, t=17, s=29)
    a[1, 0, 3, 2] = 50.0
    for name, ours, theirs in errors((a, b, w, values)):
        assert ours <= max(3 * theirs, 2e-6), name
    assert additive._prepared(a, b, w)[-1].tolist() == [0, 1]


def test_huge_values_saturate():
    a, b, w, values = drawn(t=17, s=3)
    a[..., 0, :], a[..., 1, :] = 1e30, -1e30
    output, *gradients = run(
        additive.additive_attention, (a, b, w, values), Mask(), 1.0, torch.ones(1, 1, 17, 7, device=DEVICE)
    )
    torch.testing.assert_close(output[0, 0, :2], values[0, 0].mean(0).expand(2, -1))
    assert all(x.isfinite().all() for x in gradients)
    assert (gradients[0][0, 0, :2].abs() < 1e-20).all()


def test_a_query_that_looks_at_nothing_gets_zeros_and_no_gradient():
    a, b, w, values = drawn(t=19, s=23)
    mask = dense(19, 23).fitted((1, 1), 19, 23)
    output, *gradients = run(
        additive.additive_attention, (a, b, w, values), mask, 1.0, torch.ones(1, 1, 19, 7, device=DEVICE)
    )
    assert (output[0, 0, 3] == 0).all()
    assert (gradients[0][0, 0, 3] == 0).all()


def test_strides_of_any_kind():
    a, b, w, values = drawn(b=2, h=3, t=17, s=23)
    expected = additive.additive_attention(a, b, w, values, Mask(), 1.0)
    turned = (x.mT.contiguous().mT for x in (a, b, values))
    a, b, values = (x.transpose(0, 1).contiguous().transpose(0, 1) for x in turned)
    assert torch.equal(additive.additive_attention(a, b, w, values, Mask(), 1.0), expected)
    shared = b[:1].expand(2, -1, -1, -1)
    found = additive.additive_attention(a, shared, w, values, Mask(), 1.0)
    assert torch.equal(found, additive.additive_attention(a, shared.contiguous(), w, values, Mask(), 1.0))


def test_gradients_are_the_same_every_time_and_in_any_number_of_parts(monkeypatch):
    tensors = drawn(t=17, s=139)
    upstream = torch.randn(1, 1, 17, 7, device=DEVICE)
    found = []
    for processors in (1, 64, 64):
        monkeypatch.setattr(additive, "_processors", lambda _, n=processors: n)
        found.append(run(additive.additive_attention, tensors, Mask(), 1.0, upstream))
    for once, split, again in zip(*found, strict=True):
        torch.testing.assert_close(once, split, rtol=1e-4, atol=1e-5)
        assert torch.equal(split, again)


class Idle:
    """In place of a kernel."""

    def __getitem__(self, grid):
        return lambda *args, **options: None


def test_nothing_of_the_size_of_all_pairs_is_created(monkeypatch):
    for kernel in ("far_kernel", "turn_kernel", "forward_kernel", "backward_kernel"):
        monkeypatch.setattr(additive, kernel, Idle())
    monkeypatch.setattr(additive, "_processors", lambda _: 2)
    t = s = 4096
    tensors = [x.requires_grad_() for x in drawn(t=t, s=s, r=8)]
    with created() as seen:
        additive.additive_attention(*tensors, Mask(), 1.0).sum().backward()
    assert max(seen)[0] <= 4 * t * 8 < t * s / 100


def test_what_the_kernels_take():
    def takes(a, b, values, mask=Mask(), lead=(1, 1)):  # noqa: B008 (a value)
        return additive.takes(a, b, values, mask, lead)

    a, b, _, values = drawn(t=17)
    assert takes(a, b, values)
    assert not takes(a.double(), b.double(), values.double())
    assert not takes(a, b, values.half())
    assert not takes(a[..., :1, :], b, values)
    assert not takes(a, b[..., :0, :], values[..., :0, :])
    assert not takes(a, b, values, lead=(256, 256))
    learned = torch.zeros(1, 1, 17, 139, device=DEVICE)
    assert takes(a, b, values, sl.masks.bias(learned))
    assert not takes(a, b, values, sl.masks.bias(learned.requires_grad_()))


@pytest.mark.parametrize("leads", [((), (), ()), ((2, 3), (3,), (2, 1)), ((2, 4), (2, 2), (2, 2))])
def test_attention_hands_over_any_leading_dimensions(leads):
    score = sl.scores.Additive(3, 5, 7).to(DEVICE)
    q, k, v = (
        torch.randn(*lead, *shape, device=DEVICE)
        for lead, shape in zip(leads, ((17, 3), (23, 5), (23, 2)), strict=True)
    )
    mask = sl.masks.causal()
    found = attend._additive(score, q, k, v, mask, 0.7)
    expected = attend._explicit(score, q, k, v, mask, 0.7, 0.0)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected)
    names = [name for name, _ in score.named_parameters()]
    ours = torch.autograd.grad(found.square().sum(), score.parameters())
    theirs = torch.autograd.grad(expected.square().sum(), score.parameters())
    for name, x, y in zip(names, ours, theirs, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4, msg=name)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a GPU")
def test_attention_on_a_gpu_runs_the_kernels(monkeypatch):
    calls = []
    kernels = additive.additive_attention
    monkeypatch.setattr(additive, "additive_attention", lambda *args: calls.append(1) or kernels(*args))
    score = sl.scores.Additive(3, 5, 7).to(DEVICE)
    q, k, v = (torch.randn(2, n, d, device=DEVICE) for n, d in ((17, 3), (23, 5), (23, 2)))
    found = sl.attention(q, k, v, score=score)
    assert calls
    exact = attend._explicit(score.double(), q.double(), k.double(), v.double(), Mask(), 1.0, 0.0)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)
    with torch.autocast("cuda", torch.bfloat16):
        assert sl.attention(q, k, v, score=score.float()).dtype == torch.bfloat16
