"""Compiled models: the same output, no recompilation, compiled afterwards, and seen by name."""

import copy

import pytest
import torch
import torch._dynamo
import torch._dynamo.testing
import torch.nn.functional as F
from torch import nn

import sightline as sl
from tests.look.look_oracle import near, randn
from tests.watch.watch_oracle import B, E, H, T

pytestmark = [
    pytest.mark.plain,
    pytest.mark.filterwarnings("ignore"),  # torch's own, of what it will change
    pytest.mark.usefixtures("_fresh"),
]


@pytest.fixture
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(E)
        self.self_attn = nn.MultiheadAttention(E, H, batch_first=True)
        self.linear = nn.Linear(E, E)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.self_attn(y, y, y, need_weights=False)[0]
        return x + self.linear(x).relu()


def blocks():
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(3)))


NAMES = [f"{i}.self_attn" for i in range(3)]


class Counting:
    """A backend that counts how often it compiles."""

    def __init__(self, backend="inductor"):
        self.count, self.backend = 0, torch._dynamo.lookup_backend(backend)

    def __call__(self, graph, inputs):
        self.count += 1
        return self.backend(graph, inputs)


def eager_sights(model, x):
    with sl.watch(model) as seen:
        model(x)
    return seen


def agree(seen, expected):
    for name in expected.names():
        near(seen[name].received, expected[name].received, atol=1e-5)
        near(seen[name].entropy, expected[name].entropy, atol=1e-5)


@pytest.mark.parametrize("first", ["before", "inside"])
@pytest.mark.parametrize("how", ["torch.compile", "compile()", "compile() of parts"])
def test_compiled_models(how, first):
    model, x = blocks().eval(), randn(B, T, E, dtype=torch.float32)
    backend = Counting()
    with torch.no_grad():
        expected = eager_sights(copy.deepcopy(model), x)
        if how == "torch.compile":
            compiled = torch.compile(model, backend=backend)
        else:
            compiled = model
            for part in model if how == "compile() of parts" else [model]:
                part.compile(backend=backend)
        n = None
        if first == "before":
            blind, n = compiled(x), backend.count
        with sl.watch(compiled) as seen:
            watched = [compiled(x) for _ in range(2)]
        n = backend.count if n is None else n
        assert n >= 1
        blind = compiled(x)
        assert backend.count == n  # nothing was compiled again, before or after
    assert all(torch.equal(blind, y) for y in watched)
    assert seen.names() == NAMES
    assert [len(seen.calls(name)) for name in NAMES] == [2, 2, 2]
    assert seen.unseen() == {}
    for name in NAMES:
        near(seen.calls(name)[1].received, expected[name].received, atol=1e-5)


def test_only_some_layers_of_a_compiled_model():
    compiled, x = torch.compile(blocks().eval(), backend="aot_eager"), randn(B, T, E, dtype=torch.float32)
    with torch.no_grad(), sl.watch(compiled, layers="1.*") as seen:
        compiled(x)
    assert seen.names() == ["1.self_attn"]
    assert seen.unseen() == {}


def test_training_a_compiled_model():
    model, x = blocks(), randn(B, T, E, dtype=torch.float32)
    backend = Counting("aot_eager")
    compiled = torch.compile(model, backend=backend)

    def step():
        model.zero_grad()
        out = compiled(x)
        out.square().sum().backward()
        return [out.detach(), *(p.grad.clone() for p in model.parameters())]

    blind, n = step(), backend.count
    with sl.watch(compiled) as seen:
        watched = step()
    assert all(torch.equal(a, b) for a, b in zip(blind, watched, strict=True))
    assert backend.count == n
    assert seen.names() == NAMES


class HoldsCompiledFunction(nn.Module):
    def __init__(self, backend):
        super().__init__()
        self.attn = nn.MultiheadAttention(E, H, batch_first=True)
        self.attend = torch.compile(self._attend, backend=backend)

    def _attend(self, x):
        return F.scaled_dot_product_attention(x, x, x)

    def forward(self, x):
        x = self.attn(x, x, x, need_weights=False)[0]
        q = x.unflatten(-1, (H, -1)).transpose(1, 2)
        return self.attend(q).transpose(1, 2).flatten(2)


def test_a_compiled_function_first_called_inside_a_block_is_compiled():
    backend = Counting("aot_eager")
    model, x = HoldsCompiledFunction(backend).eval(), randn(B, T, E, dtype=torch.float32)
    with torch.no_grad():
        with sl.watch(model) as seen:
            watched = model(x)
        assert backend.count == 1
        assert torch.equal(model(x), watched)
    assert backend.count == 1
    assert sum(len(calls) for _, calls in seen.items()) == 2


def test_weights_by_hand_inside_a_compiled_graph_are_named_unseen():
    class HandMadeAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qk, self.value = nn.Linear(E, 2 * E), nn.Linear(E, E)

        def forward(self, x):
            q, k = self.qk(x).chunk(2, -1)
            scores = (q @ k.mT).where(torch.ones(T, T).tril() > 0, -1e9)
            return (scores.softmax(-1) * 0.5) @ self.value(x)

    torch.manual_seed(0)
    model, x = nn.Sequential(Block(), HandMadeAttention()).eval(), randn(B, T, E, dtype=torch.float32)
    compiled = torch.compile(model)
    with torch.no_grad():
        blind = compiled(x)
        with sl.watch(compiled) as seen:
            assert torch.equal(compiled(x), blind)
    assert sum(len(calls) for _, calls in seen.items()) == 1
    assert seen.unseen()
    assert all("compiled" in reason for reason in seen.unseen().values())


class Mixer(nn.Module):
    """Attends, and no name says so."""

    def forward(self, x):
        y = x.unflatten(-1, (H, -1)).transpose(1, 2)
        return F.scaled_dot_product_attention(y, y, y).transpose(1, 2).flatten(2)


def test_names_that_compiled_code_has_lost_are_told_of():
    model = torch.compile(nn.Sequential(Mixer(), nn.ReLU(), Mixer()), backend="aot_eager")
    told = "2 attentions in compiled code are all called ''"
    with torch.no_grad(), pytest.warns(UserWarning, match=told), sl.watch(model) as seen:
        model(randn(B, T, E, dtype=torch.float32))
    assert len(seen.calls("")) == 2
