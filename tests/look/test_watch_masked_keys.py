"""Padding is known by the keys that a mask hides, however it hides them, and only of sequences that look at
themselves."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sightline as sl
from sightline.look.unseen_keys import UnseenKeys
from tests.look.look_oracle import near, randn

B, H, T, LONG, D = 2, 3, 5, 11, 4
FILLS = [-1e4, -1e9, -1e30, torch.finfo(torch.float32).min]


class SelfAttention(nn.Module):
    """Attends in one of the ways of models in the wild."""

    def __init__(self, how, fill):
        super().__init__()
        torch.manual_seed(1)
        self.qkv = nn.Linear(H * D, 3 * H * D)
        self.how, self.fill, self.num_heads = how, fill, H

    def forward(self, x, real):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, H, D).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        added = (1.0 - real[:, None, None, :].float()) * self.fill
        if self.how == "sdpa":
            return F.scaled_dot_product_attention(q, k, v, attn_mask=added)
        if self.how == "filled":
            scores = (q @ k.mT / math.sqrt(D)).masked_fill(real[:, None, None, :] == 0, self.fill)
            return scores.softmax(-1) @ v
        q, k, v = (y.reshape(b * H, t, D) for y in (q, k, v))
        scores = torch.bmm(q, k.mT) / math.sqrt(D) + added.expand(b, H, t, t).reshape(b * H, t, t)
        return torch.bmm(scores.softmax(-1), v)


@pytest.mark.parametrize("how", ["sdpa", "filled", "batch and heads in one"])
@pytest.mark.parametrize("fill", FILLS)
def test_a_sentence_alone_and_padded(how, fill):
    model, x = SelfAttention(how, fill), randn(B, LONG, H * D, dtype=torch.float32)
    real = torch.arange(LONG) < torch.tensor([[T], [LONG]])
    with torch.no_grad():
        with sl.watch(model) as alone:
            model(x[:1, :T], real[:1, :T])
        with sl.watch(model) as padded:
            model(x, real)
    assert padded[""].padding == "left out"
    near(padded[""].received[0, :, :T], alone[""].received[0], rtol=1e-2, atol=1e-2)
    assert padded[""].is_looking[:, 0].sum(-1).tolist() == [T, LONG]


@pytest.mark.parametrize("fill", FILLS)
def test_two_masks_that_were_added_leave_rows_uneven(fill):
    causal = torch.ones(LONG, LONG).triu(1)
    padding = torch.arange(LONG) < 4
    scores = randn(1, H, LONG, LONG, dtype=torch.float32)
    found = UnseenKeys.of((scores + causal * fill + padding * fill).clamp(min=torch.finfo().min))
    assert torch.equal(found.positions[0], padding)
    assert not found.is_doubtful


def test_scores_that_are_low_throughout_are_no_mask():
    x = randn(1, H, LONG, D, dtype=torch.float32) * 300
    assert UnseenKeys.of(-(torch.cdist(x, x) ** 2)).positions is None
    assert UnseenKeys.of(-(torch.cdist(x, x) ** 2) - 2e4).positions is None


def test_a_key_that_only_itself_looks_at_is_in_doubt():
    real = torch.arange(LONG) < T
    allowed = real | torch.eye(LONG, dtype=torch.bool)
    scores = randn(1, H, LONG, LONG, dtype=torch.float32)
    assert UnseenKeys.of(scores.masked_fill(~allowed, -1e30)).is_doubtful  # as XLNet masks
    causal = torch.ones(LONG, LONG, dtype=torch.bool).tril()
    assert not UnseenKeys.of(scores.masked_fill(~causal, -1e30)).is_doubtful
    assert not UnseenKeys.of(scores).is_doubtful


def test_fewer_queries_than_keys_are_the_first_of_a_cache_where_they_look_at_themselves():
    scores = randn(B, H, T, LONG, dtype=torch.float32)
    found = UnseenKeys.of(scores)
    assert found.positions is None
    assert not found.is_doubtful
    causal = torch.ones(T, LONG, dtype=torch.bool).tril()
    assert UnseenKeys.of(scores.masked_fill(~causal, -1e9)).positions is None
    padded = causal & (torch.arange(LONG) >= torch.tensor([2, 0])[:, None, None, None])
    found = UnseenKeys.of(scores.masked_fill(~padded, -torch.inf))
    assert torch.equal(found.positions, torch.arange(T) < torch.tensor([[2], [0]]))
    assert UnseenKeys.of(scores.masked_fill(~REAL[:, None, None, :], -1e9)).is_doubtful


class CrossAttention(nn.Module):
    """Looks from one sequence into another, in weights of its own or by a kernel."""

    def __init__(self, how):
        super().__init__()
        self.q, self.kv, self.how = nn.Linear(H * D, H * D), nn.Linear(H * D, 2 * H * D), how

    def forward(self, x, memory, real):
        q = self.q(x).unflatten(-1, (H, D)).transpose(1, 2)
        k, v = (y.unflatten(-1, (H, D)).transpose(1, 2) for y in self.kv(memory).chunk(2, -1))
        allowed = real[:, None, None, :]
        if self.how == "sdpa":
            return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        return (q @ k.mT).masked_fill(~allowed, -1e9).softmax(-1) @ v


def looked(name, how, n_queries, real, **given):
    model = nn.Sequential()
    model.add_module(name, CrossAttention(how))
    x, memory = (randn(B, n, H * D, seed=n, dtype=torch.float32) for n in (n_queries, LONG))
    with torch.no_grad(), sl.watch(model, **given) as seen:
        model.get_submodule(name)(x, memory, real)
    return seen[name]


REAL = torch.arange(LONG) < torch.tensor([[T], [LONG]])


@pytest.mark.parametrize("how", ["sdpa", "by hand"])
@pytest.mark.parametrize("n_queries", [LONG, T])
@pytest.mark.parametrize("name", ["encoder_attn", "src_attn", "attn2"])
def test_queries_of_another_sequence_are_no_padding(name, how, n_queries):
    sight = looked(name, how, n_queries, REAL)
    assert sight.padding == "unknown"
    assert sight.is_looking.all()


@pytest.mark.parametrize("how", ["sdpa", "by hand"])
def test_what_the_user_says_of_the_queries_counts(how):
    queries = torch.arange(LONG) < torch.tensor([[LONG], [3]])
    sight = looked("encoder_attn", how, LONG, REAL, attention_mask=queries)
    assert sight.padding == "left out"
    assert torch.equal(sight.is_looking, queries[:, None].expand(-1, H, -1))
    of_the_keys = looked("encoder_attn", how, LONG, REAL, attention_mask=REAL)
    assert of_the_keys.padding == "unknown"
    assert of_the_keys.is_looking.all()


class Annotated(nn.Module):
    """Query, key and value as arguments, which are bound again; the product is a module of its own."""

    def __init__(self):
        super().__init__()
        self.linears, self.inner = nn.ModuleList(nn.Linear(H * D, H * D) for _ in range(3)), Product()

    def forward(self, query, key, value, mask=None):
        query, key, value = (
            f(x).unflatten(-1, (H, D)).transpose(1, 2)
            for f, x in zip(self.linears, (query, key, value), strict=True)
        )
        return self.inner(query, key, value, mask)


class Product(nn.Module):
    def forward(self, q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])


@pytest.mark.parametrize("into", ["itself", "a copy", "another"])
def test_what_a_module_is_given_tells_what_it_looks_into(into):
    model, x = Annotated(), randn(B, LONG, H * D, dtype=torch.float32)
    memory = {"itself": x, "a copy": x.view_as(x), "another": x + 1}[into]
    with torch.no_grad(), sl.watch(model) as seen:
        model(x, memory, memory + 1, mask=REAL)
    sight = seen["inner"]
    assert sight.padding == ("unknown" if into == "another" else "left out")
    assert sight.is_looking.all() == (into == "another")
