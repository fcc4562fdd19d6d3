"""Numbers from a seed."""

import torch


def randn(*shape, seed=0, dtype=torch.float64):
    """Draw normal numbers in float64 and round them."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def qkv(lead, t, s, d, d_v=3, *, kv_heads=None, dtype=torch.float32):
    """Draw queries, keys and values; with ``kv_heads``, fewer heads of keys and values than of queries."""
    kv_lead = lead if kv_heads is None else (lead[0], kv_heads)
    return (
        randn(*lead, t, d, seed=t, dtype=dtype),
        randn(*kv_lead, s, d, seed=s + 1, dtype=dtype),
        randn(*kv_lead, s, d_v, seed=s + 2, dtype=dtype),
    )
