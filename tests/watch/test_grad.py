"""Watching with the graph kept: nothing changes, losses on sights train, heads and keys get their due."""

import os
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sightline as sl
from sightline.look import flow
from tests.edit.test_edit import FAMILIES, set_implementation
from tests.look.look_oracle import matrix, near, randn
from tests.watch.watch_oracle import run, same, transformers

os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

E, H, B, T = 12, 3, 2, 5


@pytest.fixture(scope="module", params=[name for name in FAMILIES if name != "vit"])
def family(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tf = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": E, "num_hidden_layers": 2, "num_attention_heads": H, "intermediate_size": 7}
    model = FAMILIES[request.param][0](tf, sizes | {"vocab_size": 23}).eval()
    for p in model.parameters():
        p.data.mul_(4.0) if p.dim() > 1 else None
    ids = torch.randint(0, 23, (B, T), generator=torch.Generator().manual_seed(1))
    return model, {"input_ids": ids} | ({"decoder_input_ids": ids.flip(-1)} if request.param == "t5" else {})


def gradients(model):
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("space", [nn, sl.nn], ids=["torch", "ours"])
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@pytest.mark.parametrize("training", [True, False])
def test_layers_stay_the_same_to_the_bit(space, kind, training):
    model, args, names = transformers(space)[kind]
    model.train(training)
    blind = run(model, *args)
    with sl.watch(model, grad=True) as seen:
        watched = run(model, *args)
    assert same(blind, watched)
    assert seen.names() == names
    assert all(seen[name].importance.shape == (2, 3) for name in names)


def test_models_of_hugging_face_stay_the_same_to_the_bit(family):
    model, given = family
    results = []
    for watch in (False, True):
        model.zero_grad()
        if watch:
            with sl.watch(model, grad=True) as seen:
                out = model(**given).last_hidden_state
                out.square().sum().backward()
        else:
            out = model(**given).last_hidden_state
            out.square().sum().backward()
        results.append([out.detach(), *gradients(model)])
    assert same(*results)
    assert all((seen.calls(name)[0].importance > 0).all() for name in seen)


def eager_run(model, given):
    """Output and weights of the eager path, weights with their gradients to come."""
    set_implementation(model, "eager")
    out = model(**given, output_attentions=True)
    set_implementation(model, "sdpa")
    found = [out[n] for n in ("attentions", "encoder_attentions") if out.get(n) is not None]
    for weights in found[0]:
        weights.retain_grad()
    return out.last_hidden_state, found[0]


def first_layers(seen, n):
    return [seen.calls(name)[0] for name in list(seen)[:n]]


def test_a_loss_on_sights_trains_as_a_loss_on_weights_does(family):
    model, given = family
    model.zero_grad()
    _, weights = eager_run(model, given)
    sum(w.amax(-1).sum() - (w * w.clamp(min=1e-30).log()).sum() for w in weights).backward()
    expected = gradients(model)
    model.zero_grad()
    with sl.watch(model, grad=True) as seen:
        model(**given)
    loss = sum(x.entropy.sum() + x.logit.sub(x.lse).exp().sum() for x in first_layers(seen, len(weights)))
    loss.backward()
    for ours, theirs in zip(gradients(model), expected, strict=True):
        if theirs is None:
            assert ours is None or not ours.any()
        else:
            near(ours, theirs, 1e-3, 2e-5)


def test_relevance_is_that_of_the_matrix(family):
    model, given = family
    out, weights = eager_run(model, given)
    out[:, -1].square().sum().backward()
    with sl.watch(model, grad=True) as seen:
        model(**given).last_hidden_state[:, -1].square().sum().backward()
    sights, whole = first_layers(seen, len(weights)), None
    for sight, w in zip(sights, weights, strict=True):
        dense = (w * w.grad).clamp(min=0).detach()
        near(sight.relevance.keys, dense.sum(-2), 1e-4, 1e-5)
        near(sight.relevance.queries, dense.sum(-1), 1e-4, 1e-5)
        near(sight[1, 0].relevance.keys, dense[1, 0].sum(-2), 1e-4, 1e-5)
        step = dense.mean(1)
        whole = torch.eye(T) + step if whole is None else whole + step @ whole
    near(flow.relevance(sights), whole, 1e-4, 1e-5)
    for token in (0, T - 1, -2):
        near(flow.relevance(sights, token=token), whole[:, token], 1e-4, 1e-5)


def gated_layer(layer, x, gates):
    """A post-norm encoder layer whose heads are multiplied by gates."""
    q, k, v = (
        p.unflatten(-1, (H, -1)).transpose(1, 2)
        for p in F.linear(x, layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias).chunk(3, -1)
    )
    context = (matrix(q, k)[0] @ v * gates[..., None, None]).transpose(1, 2).flatten(2)
    x = layer.norm1(x + layer.self_attn.out_proj(context))
    return layer.norm2(x + layer.linear2(F.relu(layer.linear1(x))))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_importance_is_the_gradient_of_a_gate(batch_first, training):
    layer = nn.TransformerEncoderLayer(E, H, dim_feedforward=7, dropout=0.0, batch_first=batch_first)
    layer.train(training)
    x = randn(B, T, E, dtype=torch.float32)
    gates = torch.ones(B, H, requires_grad=True)
    gated_layer(layer, x, gates)[..., 0].sum().backward()
    with sl.watch(layer, grad=True) as seen:
        layer(x if batch_first else x.transpose(0, 1))[..., 0].sum().backward()
    near(seen["self_attn"].importance, gates.grad.abs(), 1e-4, 1e-6)
    near(seen["self_attn"][1].importance, gates.grad[1].abs(), 1e-4, 1e-6)


def test_checkpointed_layers_are_seen_once():
    layer = nn.TransformerEncoderLayer(E, H, dim_feedforward=7, dropout=0.0, batch_first=True)
    x = randn(B, T, E, dtype=torch.float32).requires_grad_()
    with sl.watch(layer, grad=True) as seen:
        torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).square().sum().backward()
    assert len(seen.calls("self_attn")) == 1
    assert (seen["self_attn"].importance > 0).all()


def test_additive_scores_and_one_head():
    score = sl.scores.Additive(4, 4, 5)

    class Model(nn.Module):
        def forward(self, q, k, v):
            return sl.attention(q, k, v, score=score)

    q, k, v = (randn(B, T, 4, seed=i, dtype=torch.float32).requires_grad_() for i in range(3))
    model = Model()
    with sl.watch(model, grad=True) as seen:
        model(q, k, v).square().sum().backward()
    weights = score(q, k).softmax(-1)
    slopes = 2 * (weights @ v) @ v.mT
    near(seen[""].relevance.keys, (weights * slopes).clamp(min=0).sum(-2), 1e-4, 1e-6)
    near(seen[""].importance, 2 * (weights @ v).square().sum((-2, -1)), 1e-4, 1e-6)


def test_rollout_of_one_token_is_a_row_of_the_product():
    t, sights = 257, []
    for i in range(3):
        q, k = (randn(1, 2, t, 4, seed=7 * i + j) for j in range(2))
        sights.append(sl.look(q, k, k, sl.masks.causal() if i else None))
    whole = flow.rollout(sights)
    for token in (0, 100, -1):
        near(flow.rollout(sights, token=token), whole[:, token], 1e-6, 1e-9)


def test_rollout_passes_by_queries_that_look_at_nothing():
    allowed = torch.rand(7, 7, generator=torch.Generator().manual_seed(0)) < 0.5
    allowed[3] = False
    q = randn(2, 3, 7, 4)
    sights = [sl.look(q, q, q, allowed), sl.look(q, q + 1, q, allowed)]
    near(flow.rollout(sights, token=3), flow.rollout(sights)[:, 3], 1e-9, 1e-12)
    near(flow.rollout(sights, token=5), flow.rollout(sights)[:, 5], 1e-9, 1e-12)


# Bad input


@pytest.mark.bad_input
def test_without_a_backward_pass():
    layer = nn.TransformerEncoderLayer(E, H, batch_first=True)
    x = randn(B, T, E, dtype=torch.float32)
    with sl.watch(layer) as plain, torch.no_grad():
        layer(x)
    with pytest.raises(
        ValueError, match=r"self_attn has no importance; watch with sl\.watch\(model, grad=True\)"
    ):
        _ = plain["self_attn"].importance
    with sl.watch(layer, grad=True) as seen:
        layer(x)
    with pytest.raises(
        ValueError, match=r"no relevance yet: no backward pass has reached.*loss\.backward\(\)"
    ):
        _ = seen["self_attn"].relevance
    with sl.watch(layer, grad=True) as blind, torch.no_grad():
        layer(x)
    with pytest.raises(ValueError, match=r"has no importance; watch with .* gradients on"):
        _ = blind["self_attn"].importance
    with pytest.raises(ValueError, match=r"the token must be in 0\.\.4, got 5; T is 5 here"):
        flow.rollout([seen["self_attn"]], token=5)
