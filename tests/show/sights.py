"""Sights to draw: of a few tokens measured, of very many made up."""

import torch

import sightline as sl

LONG = 100_000


def seen(t=7, s=7, heads=3, mask=None, **options):
    q, k = 2 * torch.randn(1, heads, t, 5), torch.randn(1, heads, s, 5)
    return sl.look(q, k, k, mask, **options)


def long(heads=2):
    """What a sight of 100,000 tokens holds: one token gets half of all weight."""
    received = torch.rand(1, heads, LONG)
    received[..., 0] = LONG / 2
    statistics = {
        "received": received,
        "map": torch.rand(1, heads, 61, 61).tril() / LONG,
        "entropy": 9 + torch.rand(1, heads, LONG),
        "lse": torch.zeros(1, heads, LONG),
    }
    return sl.Sight(LONG, LONG, (1, heads), statistics, name="layers.7.self_attn")
