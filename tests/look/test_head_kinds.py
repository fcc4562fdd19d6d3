"""The names of heads: heads built to be of a kind are called by its name."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch

import sightline as sl
from sightline.look.head_kinds import head_shares
from sightline.look.heads import head_table
from tests.look.look_oracle import near, randn

T = 37


def sight_of(weights, lead=(1,)):
    """A look whose weights are these, up to rounding: their logarithms are the bias."""
    h, t, s = weights.shape
    q = torch.zeros(*lead, h, t, 4, dtype=torch.float64)
    k = torch.zeros(*lead, h, s, 4, dtype=torch.float64)
    return sl.look(q, k, k, sl.masks.bias(weights.double().log()[None]))


def on(distance, share=0.9, t=T):
    """So much of the weight at a distance, the rest on all keys before; the first rows look at all."""
    rest = torch.ones(t, t).tril()
    weights = rest / rest.sum(-1, keepdim=True)
    for i in range(distance, t):
        weights[i] *= 1 - share
        weights[i, i - distance] += share
    return weights


def column(key, share=0.9, t=T):
    weights = torch.ones(t, t).tril()
    weights = weights / weights.sum(-1, keepdim=True)
    weights[key:] *= 1 - share
    weights[key:, key] += share
    return weights


def kinds(weights, **options):
    return [row.kind for row in head_table({"a": sight_of(weights)}, **options)]


def test_every_kind_gets_its_name():
    uniform = torch.ones(T, T).tril()
    near_by = sum(on(d, 0.3) for d in range(3)) / 3
    slash = 0.5 * column(7, 1.0) + 0.5 * on(11, 1.0)
    weights = torch.stack([on(1), column(0), on(0), near_by, slash, uniform / uniform.sum(-1, keepdim=True)])
    expected = ["previous token", "sink", "local", "", "vertical-slash", "uniform"]
    assert kinds(weights) == expected
    assert kinds(on(11)[None], period=12) == ["induction"]
    assert kinds(on(11)[None]) != ["induction"]
    assert kinds(column(5)[None], span=(4, 7)) == ["retrieval"]
    assert kinds(column(5)[None], span=(6, 7)) != ["retrieval"]


@pytest.mark.parametrize("t", [2, 3, 5, 7])
def test_a_uniform_head_is_uniform_however_few_keys_there_are(t):
    x = torch.zeros(1, 1, t, 4)
    for mask in (None, sl.masks.causal()):
        assert [row.kind for row in head_table({"a": sl.look(x, x, x, mask)}, span=(0, t))] == ["uniform"]
    assert kinds(column(0, 0.8, t)[None]) == ["sink"]


def test_shares_are_those_of_the_matrix():
    x = randn(2, 3, T, 4)
    sight = sl.look(x, x + 1, x, sl.masks.causal())
    weights = sight.map((T, T))
    shares = head_shares(sight, is_cross=False, period=10, span=(3, 9))
    near(shares["previous token"], weights.diagonal(-1, -2, -1).sum(-1).mean(0) / T)
    near(shares["induction"], weights.diagonal(-9, -2, -1).mean(-1).mean(0))
    near(shares["sink"], weights[..., 0].mean((0, 2)))
    near(shares["local"], sum(weights.diagonal(-d, -2, -1).sum(-1) for d in range(3)).mean(0) / T)
    at = weights.argmax(-1)
    near(shares["retrieval"], ((at >= 3) & (at < 9)).double().mean((0, 2)))


def test_cross_attention_has_no_distances():
    x = randn(1, 2, T, 4)
    table = head_table({"layers.0.multihead_attn": sl.look(x, x, x)})
    assert set(table[0].shares) == {"sink"}


def test_the_table_prints_and_is_json():
    table = head_table({"a.b": sight_of(torch.stack([on(1), column(0)]))})
    lines = str(table).splitlines()
    assert lines[0].split() == ["layer", "head", "entropy", "distance", "first", "peak", "evenness", "kind"]
    assert lines[1].endswith("previous token")
    assert lines[2].startswith("a.b       1")
    assert repr(table) == str(table)
    rows = json.loads(table.to_json())
    assert (rows[1]["layer"], rows[1]["kind"]) == ("a.b", "sink")
    assert rows[1]["shares"]["sink"] == table[1].shares["sink"]


def test_the_table_as_a_data_frame(monkeypatch):
    table = head_table({"a.b": sight_of(torch.stack([on(1), column(0)]))})
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda rows: rows))
    rows = table.to_pandas()
    assert (rows[0]["kind"], rows[0]["share of previous token"]) == (
        "previous token",
        table[0].shares["previous token"],
    )
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_pandas needs pandas, which is not installed"):
        table.to_pandas()


@pytest.mark.bad_input
def test_what_is_no_period_and_no_span():
    with pytest.raises(ValueError, match=rf"period must be .* at most S={T}, got 99"):
        kinds(on(1)[None], period=99)
    with pytest.raises(ValueError, match=r"keys must be a range .* got \(5, 99\)"):
        kinds(on(1)[None], span=(5, 99))
