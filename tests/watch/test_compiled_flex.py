"""A user's own ``torch.compile(flex_attention)``, in a model that is not compiled."""

import functools

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo import eval_frame
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import sightline as sl
from sightline.watch.listeners import silence
from tests.look.look_oracle import near

pytestmark = [
    pytest.mark.plain,
    pytest.mark.filterwarnings("ignore"),  # torch's own, of what it will change
    pytest.mark.usefixtures("_fresh"),
]
B, H, T, D = 2, 3, 17, 16


@pytest.fixture
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Kernels:
    """A backend whose code meets no operator that could be heard, as Inductor's; it counts its graphs."""

    count = 0

    def __call__(self, graph, _inputs):
        self.count += 1

        def run(*args):
            with silence():
                return graph.forward(*args)

        return run


def past(_b, _h, i, j):
    return i >= j


def nearer(score, _b, h, i, j):
    return score - 0.1 * (h + 1) * (i - j).abs()


MASK = create_block_mask(past, None, None, T, T, device="cpu")


class Attention(nn.Module):
    def __init__(self, attend, **options):
        super().__init__()
        self.qkv = nn.Linear(H * D, 3 * H * D)
        self.attend, self.options = attend, options

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (H, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        return self.attend(q, k, v, **self.options).transpose(1, 2).flatten(2)


def model_of(attend, **options):
    torch.manual_seed(0)
    return nn.Sequential(Attention(attend, **options), Attention(attend, **options)).eval()


def seen_of(model, x):
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        out = model(x)
    return seen, out


@pytest.mark.parametrize("first", ["before", "inside"])
def test_it_is_seen_and_not_compiled_again(first):
    backend, x = Kernels(), torch.randn(B, T, H * D)
    model = model_of(torch.compile(flex_attention, backend=backend), block_mask=MASK, score_mod=nearer)
    with torch.no_grad():
        blind = model(x) if first == "before" else None
    n = backend.count
    seen, watched = seen_of(model, x)
    n = n or backend.count
    with torch.no_grad():
        blind = model(x) if blind is None else blind
        model(x)
    assert backend.count == n == 1
    assert torch.equal(watched, blind)
    assert (seen.names(), seen.unseen()) == (["0", "1"], {})
    expected, _ = seen_of(model_of(flex_attention, block_mask=MASK, score_mod=nearer), x)
    for name in expected.names():
        assert seen[name].source == "flex"
        near(seen[name].rows(range(T)), expected[name].rows(range(T)), atol=1e-5)
        near(seen[name].entropy, expected[name].entropy, atol=1e-5)


def counted(backend, function=flex_attention):
    return torch.compile(function, backend=backend)


@pytest.mark.parametrize("how", ["keywords", "partial", "positions"])
def test_however_it_is_called(how):
    """A backend whose operators are heard: the call counts once all the same."""
    compiled, x = counted("aot_eager"), torch.randn(B, T, H * D)
    attend = {
        "keywords": lambda q, k, v: compiled(query=q, key=k, value=v, block_mask=MASK, enable_gqa=True),
        "partial": counted("aot_eager", functools.partial(flex_attention, block_mask=MASK)),
        "positions": lambda q, k, v: compiled(q, k, v, None, MASK),
    }[how]
    seen, _ = seen_of(model_of(attend), x)
    expected, _ = seen_of(model_of(flex_attention, block_mask=MASK), x)
    assert [len(seen.calls(name)) for name in seen.names()] == [1, 1]
    for name in expected.names():
        near(seen[name].received, expected[name].received, atol=1e-5)


def test_it_leaves_no_trace_and_hears_nothing_of_a_call_that_raises():
    before = eval_frame._maybe_set_eval_frame
    model, x = model_of(counted("aot_eager")), torch.randn(B, T, H * D)
    model[1].options = {"scale": "none"}
    with torch.no_grad(), sl.watch(model) as seen:
        assert eval_frame._maybe_set_eval_frame is not before
        with pytest.raises(TypeError, match="index"):
            model(x)
        model[1].options = {}
        model(x)
    assert [len(seen.calls(name)) for name in seen.names()] == [2, 1]
    assert eval_frame._maybe_set_eval_frame is before


def test_a_function_around_it_says_why_it_is_dark():
    @torch.compile(backend=Kernels())
    def attend(q, k, v):
        return flex_attention(q * 2, k, v)

    seen, _ = seen_of(model_of(attend), torch.randn(B, T, H * D))
    assert set(seen.unseen()) == {"0", "1"}
    assert all("the compiled function attend ran in it" in reason for reason in seen.unseen().values())
