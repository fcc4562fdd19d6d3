"""Keys that no query looks at, read off masks and scores: what is known of padding where nobody tells."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sightline.shapes import Bool, Float

__all__ = ["UnseenKeys", "allowed_by", "own_of_prefix", "unseen_positions"]

# How far below the others a score lies that is masked. Models add or fill in -1e4, -1e9, -1e30 or the least
# number there is; no score of a key that is looked at lies so far below.
_FAR = 5e3


@dataclass(frozen=True, eq=False)
class UnseenKeys:
    """What scores that a model has computed itself show of keys that no query looks at.

    Attributes:
        positions: Queries that are padding, if a sequence looks at itself, T = S or the first T of a cache;
            None if there are none. The leading dimension is the batch, or batch and heads in one.
        is_doubtful: Whether some keys are masked for all, or for all but their own query, in a way that does
            not tell which queries are padding; a tensor, so that a GPU is not waited for.
    """

    positions: Bool[Tensor, "N T"] | None
    is_doubtful: Bool[Tensor, ""]

    @classmethod
    def of(cls, scores: Float[Tensor, "... T S"]) -> "UnseenKeys | None":
        """What scores show; None where they are too few to show anything."""
        t, s = scores.shape[-2:]
        if t < 2 or s < 2:
            return None
        allowed = allowed_by(scores)
        allowed = (allowed.any(-3) if allowed.dim() > 3 else allowed).reshape(-1, t, s)
        if t != s:
            own = own_of_prefix(allowed) if t < s and not allowed.is_cuda else None
            if own is None:
                return cls(None, (~allowed.any(-2)).any())
            return cls(None if bool(own.all()) else ~own, torch.zeros((), dtype=torch.bool))
        return cls(unseen_positions(allowed), _sees_itself_alone(allowed).any())

    def of_batch(self, b: int) -> Bool[Tensor, "B T"] | None:
        """The positions of each item; of heads in one dimension with the batch, where all agree."""
        found = self.positions
        if found is None or found.size(0) == b:
            return found
        return None if found.size(0) % b else found.reshape(b, -1, found.size(1)).all(1)


def allowed_by(x: Float[Tensor, "... T S"]) -> Bool[Tensor, "... T S"]:
    """Where scores, or what is added to them, let a query look.

    A row that lies far below zero as a whole, where others of its head don't, lets it look nowhere: two masks
    that were added leave such rows uneven.
    """
    top = x.amax(-1, keepdim=True)
    is_far = top <= -_FAR
    is_far &= ~is_far.all(-2, keepdim=True)
    floor = torch.where(is_far, torch.inf, top - _FAR).clamp(min=torch.finfo(x.dtype).min / 2)
    return x > floor


def own_of_prefix(allowed: Bool[Tensor, "B T S"]) -> Bool[Tensor, "B T"] | None:
    """Which queries may look at themselves, where they are the first T of a cache with room left; else None.

    What sees all says nothing, and somebody has to look at itself.
    """
    allowed = allowed & ~allowed.all(-1, keepdim=True)
    own = allowed.diagonal(dim1=-2, dim2=-1)
    return None if bool(allowed.triu(1).any()) or not bool(own.any(-1).all()) else own


def _sees_itself_alone(allowed: Bool[Tensor, "N T T"]) -> Bool[Tensor, "N T"]:
    """Keys that only their own query looks at, which looks at others, where queries look both ways.

    XLNet masks padding so, but also the last token of a permutation.
    """
    t = allowed.size(-1)
    others = allowed & ~torch.eye(t, dtype=torch.bool, device=allowed.device)
    both_ways = others.triu().any(-1).any(-1) & others.tril().any(-1).any(-1)
    return others.any(-1) & ~others.any(-2) & both_ways[:, None]


def unseen_positions(allowed: Bool[Tensor, "B T T"]) -> Bool[Tensor, "B T"] | None:
    """Positions that no query may look at, itself included; None if there are none.

    Hugging Face lets queries that are padding look everywhere, so that no row is empty. Such rows say
    nothing: a row that sees all is left out where others don't. The last row may see all by right, where the
    others see all but the last key, as causal ones do.
    """
    sees_all = allowed.all(-1)
    says_nothing = sees_all & ~sees_all.all(-1, keepdim=True)
    seen = (allowed & ~says_nothing.unsqueeze(-1)).any(-2)
    seen[:, -1] |= sees_all[:, -1] & seen[:, :-1].all(-1)
    return None if not seen.is_cuda and bool(seen.all()) else ~seen  # a GPU is not waited for
