"""The few largest of many: a beam's choice among all tokens, without going over all of them with care."""

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.shapes import Float, Int

__all__ = ["top_k"]

_BLOCK = 64


def top_k(x: Float[Tensor, "N V"], k: int) -> tuple[Float[Tensor, "N k"], Int[Tensor, "N k"]]:
    """As ``x.topk(k)``; in long rows it looks only into the k blocks whose largest are the largest.

    What is among the k largest has fewer than k before it, and so has the largest of its block.

    Example:
        >>> values, places = top_k(torch.arange(1000.0)[None], 2)
        >>> values.tolist(), places.tolist()
        ([[999.0, 998.0]], [[999, 998]])
    """
    n, v = x.shape
    cut = v // _BLOCK * _BLOCK
    if cut < 4 * k * _BLOCK:
        return x.topk(k)
    blocks = x[:, :cut].unflatten(1, (-1, _BLOCK))
    chosen = blocks.amax(-1).topk(k, sorted=False).indices  # (N, k)
    few = blocks[torch.arange(n, device=x.device).unsqueeze(1), chosen].flatten(1)  # (N, k * block)
    if cut < v:  # the rest is one more block, a short one, that is always looked into
        few = torch.cat([few, x[:, cut:]], 1)
        chosen = F.pad(chosen, (0, 1), value=cut // _BLOCK)
    values, at = few.topk(k)
    return values, chosen.gather(1, at // _BLOCK) * _BLOCK + at % _BLOCK
