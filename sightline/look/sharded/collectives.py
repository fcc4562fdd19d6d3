"""The collectives that statistics need, each over several flat tensors, under whatever name torch has."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["NAMES", "add_up", "all_gather", "reduce_scatter"]

# As torch calls them from 2.12 on, and before.
NAMES = {
    "all_gather": ("all_gather_single", "all_gather_into_tensor"),
    "reduce_scatter": ("reduce_scatter_single", "reduce_scatter_tensor"),
}


def all_gather(own: Tensor, group: Any) -> Tensor:
    """A flat tensor of every rank, all as long, as rows on each of them."""
    ranks = dist.get_world_size(group)
    everyone = own.new_empty(ranks * own.numel())
    _function("all_gather")(everyone, own, group=group)
    return everyone.view(ranks, own.numel())


def reduce_scatter(parts: list[Tensor], group: Any, *, largest: bool = False) -> Tensor:
    """Flat tensors for each rank, added up over all ranks; this rank gets its own, padded to the longest.

    Args:
        parts: What this rank has for each of them.
        group: The ranks.
        largest: Whether to take maxima of finite numbers and NaN instead of sums.
    """
    longest = max(x.numel() for x in parts)
    padded = torch.cat([torch.nn.functional.pad(x, (0, longest - x.numel())) for x in parts])
    own = padded.new_empty(longest)
    if not largest:
        _function("reduce_scatter")(own, padded, op=dist.ReduceOp.SUM, group=group)
        return own
    padded.masked_fill_(padded.isnan(), torch.inf)  # a backend's maximum may drop a NaN
    _function("reduce_scatter")(own, padded, op=dist.ReduceOp.MAX, group=group)
    return own.masked_fill_(own == torch.inf, torch.nan)


def add_up(tensors: list[Tensor], group: Any, *, largest: bool = False) -> list[Tensor]:
    """Sums over all ranks, or maxima, on every rank: one all-reduce."""
    flat = torch.cat([x.flatten() for x in tensors])
    dist.all_reduce(flat, op=dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM, group=group)
    parts = flat.split([x.numel() for x in tensors])
    return [part.view(x.shape) for part, x in zip(parts, tensors, strict=True)]


def _function(what: str) -> Any:
    return next(getattr(dist, name) for name in NAMES[what] if hasattr(dist, name))
