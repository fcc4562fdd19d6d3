"""``sl.attention`` is one call to whoever watches, however it is computed."""

import copy

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import sightline as sl
from sightline.attention import attend
from tests.look.look_oracle import MASKS, SCORES, agrees, matrix, near, plain_scores, randn, score_of

B, H, T, S, D = 2, 3, 11, 13, 4


class Attends(nn.Module):
    """Calls sl.attention once."""

    def __init__(self, mask=None, score=None, **options):
        super().__init__()
        self.mask, self.score, self.options = mask, score, options

    def forward(self, q, k, v):
        return sl.attention(q, k, v, self.mask, score=self.score, **self.options)


def inputs(*lead, t=T, s=S, kv_heads=None, dtype=torch.float32):
    kv = lead if kv_heads is None else (*lead[:-1], kv_heads)
    return [randn(*x, n, D, seed=i, dtype=dtype) for i, (x, n) in enumerate(((lead, t), (kv, s), (kv, s)))]


def same_with_gradients(model, tensors, **watching):
    """What was seen, if output and gradients are bit for bit those of the model when nobody watches."""

    def run():
        leaves = [x.detach().clone().requires_grad_() for x in tensors]
        model.zero_grad()
        torch.manual_seed(5)
        out = model(*leaves)
        out.square().sum().backward()
        return [out.detach(), *(x.grad for x in leaves), *(p.grad for p in model.parameters())]

    blind = run()
    with sl.watch(model, **watching) as seen:
        watched = run()
    assert all(torch.equal(x, y) for x, y in zip(blind, watched, strict=True))
    return seen


@pytest.fixture
def by_blocks(monkeypatch):
    """Few pairs are many, so that attention goes block by block."""
    monkeypatch.setattr(attend, "_PAIRS", {"cpu": 100, "cuda": 100})
    monkeypatch.setattr(attend, "_BLOCK", {"cpu": 3, "cuda": 3})


@pytest.mark.combinations
@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("mask", ["nothing", "causal", "padding", "dense", "bias_of_heads", "all_together"])
def test_every_score_and_mask(name, mask):
    given, added = MASKS[mask]((B, H), T, S)
    model, (q, k, v) = Attends(given, score_of(name, D)), inputs(B, H)
    seen = same_with_gradients(model, (q, k, v), keep=True)
    assert seen.names() == [""]
    assert len(seen.calls("")) == 1
    with torch.no_grad():
        scores = plain_scores(name, model.score, q.double(), k.double())
        agrees(seen[""], *matrix(q, k, added, scores=scores), rtol=1e-4, atol=1e-5)


@pytest.mark.combinations
@pytest.mark.usefixtures("by_blocks")
@pytest.mark.parametrize("name", ["scaled_dot", "general", "additive"])
@pytest.mark.parametrize("mask", ["window", "padding", "causal_and_padding", "all_together", "nobody"])
def test_block_by_block_is_one_call(name, mask):
    given, added = MASKS[mask]((B, H), T, S)
    model, (q, k, v) = Attends(given, score_of(name, D)), inputs(B, H)
    seen = same_with_gradients(model, (q, k, v), keep=True)
    assert len(seen.calls("")) == 1
    with torch.no_grad():
        scores = plain_scores(name, model.score, q.double(), k.double())
        agrees(seen[""], *matrix(q, k, added, scores=scores), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lead", [(), (B,), (B, H), (2, 3, 2)], ids=str)
@pytest.mark.parametrize("name", ["scaled_dot", "additive"])
def test_leading_dimensions_are_the_callers(lead, name):
    given, added = MASKS["dense"](lead, T, S)
    model, (q, k, v) = Attends(given, score_of(name, D)), inputs(*lead)
    seen = same_with_gradients(model, (q, k, v), keep=True)
    assert seen[""].lead == lead
    with torch.no_grad():
        scores = plain_scores(name, model.score, q.double(), k.double())
        agrees(seen[""], *matrix(q, k, added, scores=scores), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"scale": 0.3}, {"dropout_p": 0.4}, {"scale": -0.7}], ids=str)
@pytest.mark.parametrize("name", [None, "additive"])
def test_scale_and_dropout(options, name):
    score = None if name is None else score_of(name, D)
    model, (q, k, v) = Attends(None, score, **options), inputs(B, H)
    seen = same_with_gradients(model, (q, k, v), keep=True)
    assert len(seen.calls("")) == 1
    with torch.no_grad():
        scores = plain_scores(name or "dot", score, q.double(), k.double())
        scale = options.get("scale", 1.0 if name else D**-0.5)
        agrees(seen[""], *matrix(q, k, scores=scores * scale), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["scaled_dot", "additive"])
def test_grouped_queries(name):
    model, (q, k, v) = Attends(sl.masks.causal(), score_of(name, D)), inputs(B, 6, kv_heads=2)
    seen = same_with_gradients(model, (q, k, v), keep=True)
    with torch.no_grad():
        wide = k.double().repeat_interleave(3, 1)
        scores = plain_scores(name, model.score, q.double(), wide)
        added = MASKS["causal"]((B, 6), T, S)[1]
        agrees(seen[""], *matrix(q, wide, added, scores=scores), rtol=1e-4, atol=1e-5)


def test_a_decoder_that_attends_at_every_step():
    """One query at a time, an additive score that is a module of the model: as recurrent translators do."""

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.attend = Attends(score=sl.scores.Additive(D, D, 5))
            self.cell = nn.GRUCell(D, D)

        def forward(self, memory, n):
            state = memory.mean(1)
            for _ in range(n):
                state = self.cell(self.attend(state.unsqueeze(1), memory, memory).squeeze(1), state)
            return state

    model, memory = Decoder(), randn(B, S, D, dtype=torch.float32)
    with sl.watch(model, keep=True) as seen:
        model(memory, 5)
    assert seen.names() == ["attend"]
    assert len(seen["attend"]) == 5
    assert (seen.stack("attend").t, seen.stack("attend").s) == (5, S)
    near(seen.stack("attend").map((5, S)).sum(-1), torch.ones(B, 5))


def test_what_is_kept_does_not_follow_the_weights_of_the_score():
    model, tensors = Attends(score=sl.scores.Additive(D, D, 5)), inputs(B, H)
    with sl.watch(model, keep=True) as seen, torch.no_grad():
        model(*tensors)
        before = seen[""].rows([0, 10])
        for parameter in model.parameters():
            parameter.normal_()
        assert torch.equal(seen[""].rows([0, 10]), before)
        assert not any(
            m._forward_hooks or m._forward_pre_hooks for m in seen[""].kept[0].inputs.score.modules()
        )


def test_hooks_of_a_score_run_as_often_as_unwatched():
    model, tensors, calls = Attends(score=sl.scores.Additive(D, D, 5)), inputs(B, H), []
    model.score.register_forward_hook(lambda *_: calls.append(1))
    model(*tensors)
    blind = len(calls)
    with sl.watch(model, keep=True) as seen:
        model(*tensors)
    assert len(calls) == 2 * blind
    seen[""].rows([1])
    assert len(calls) == 2 * blind


def test_choosing_counting_and_nesting():
    model, tensors = nn.ModuleList([Attends(score=score_of("additive", D)), Attends()]), inputs(B, H)
    with sl.watch(model, layers="1") as outer, sl.watch(model, every=2) as inner:
        for _ in range(3):
            model[0](*tensors)
            model[1](*tensors)
    assert [(name, len(calls)) for name, calls in outer.items()] == [("1", 3)]
    assert [(name, len(calls)) for name, calls in inner.items()] == [("0", 2), ("1", 2)]


def test_a_look_inside_is_one_call():
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.score = sl.scores.Additive(D, D, 5)

        def forward(self, q, k, v):
            return sl.look(q, k, v, sl.masks.causal(), score=self.score).received

    model, tensors = Looks(), inputs(B, H)
    blind = model(*tensors)
    with sl.watch(model) as seen:
        assert torch.equal(model(*tensors), blind)
    assert len(seen.calls("")) == 1


@pytest.mark.bad_input
def test_a_refused_call_leaves_the_watch_listening():
    model, (q, k, v) = Attends(score=score_of("additive", D)), inputs(B, H)
    with sl.watch(model) as seen:
        with pytest.raises(ValueError, match="same length"):
            model(q, k, v[:, :, 1:])
        model(q, k, v)
        nn.functional.scaled_dot_product_attention(q, k, v)  # none of the model's
        sl.attention(q, k, v, score="cosine")
    assert len(seen.calls("")) == 1


def test_other_modes_see_attention_and_may_answer_it():
    class Answers(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return torch.full_like(args[0], 7.0) if func is sl.attention else func(*args, **(kwargs or {}))

    q, k, v = inputs(B, H)
    with Answers():
        assert (sl.attention(q, k, v, scale=0.5) == 7).all()
    with torch.device("cpu"):
        assert torch.equal(sl.attention(q, k, v, scale=0.5), attend.attention(q, k, v, scale=0.5))


@pytest.mark.plain  # the shape hook can't be compiled
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's, of itself
@pytest.mark.parametrize("name", ["scaled_dot", "additive"])
def test_compiled_attention_still_is_one_graph(name):
    model, tensors = Attends(sl.masks.window(2, 1), score_of(name, D)), inputs(B, H)
    compiled = torch.compile(copy.deepcopy(model), fullgraph=True, backend="eager")
    near(compiled(*tensors).detach(), model(*tensors).detach())


def test_a_kept_score_moves_and_is_cut():
    model, (q, k, v) = Attends(score=sl.scores.Additive(D, D, 5)), inputs(B, H)
    with sl.watch(model, keep=True) as seen:
        model(q, k, v)
    sight = seen[""]
    assert torch.equal(sight.cpu().rows([3]), sight.rows([3]))
    near(sight[1, 2].rows([3]), sight.rows([3])[1, 2])
    assert not any(x.requires_grad for x in sight.statistics.values())
