"""How well a query matches a key: the score functions of the lecture notes, as small modules.

A score maps queries ``(..., T, d_q)`` and keys ``(..., S, d_k)`` to ``(..., T, S)``:

=============  ==============================  ======================================
class          score(s, h), s a query, h a key  parameters
=============  ==============================  ======================================
``Dot``        s·h                             none
``ScaledDot``  s·h / √d                        none
``Cosine``     s·h / (‖s‖ ‖h‖)                  none
``General``    sᵀ W h                           W (d_q, d_k)
``LowRank``    (U s)ᵀ (V h)                     U (rank, d_q), V (rank, d_k)
``Additive``   vᵀ tanh(W h + V s)               W (d_attn, d_k), V (d_attn, d_q), v (d_attn)
=============  ==============================  ======================================

All but the last are a dot product once q and k are mapped, and say so in :meth:`Score.as_dot`: that is
how they reach the fused kernels.
"""

import abc
import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention.additive import additive_scores
from sightline.messages import check_integer
from sightline.shapes import (
    Float,
    are_cast,
    check_qkv,
    check_rows,
    check_same_width,
    did_you_mean,
    leading,
    shown,
)
from sightline.untrusted import check_memory

__all__ = ["Additive", "Cosine", "Dot", "General", "LowRank", "ScaledDot", "Score", "named"]


class Score(nn.Module, abc.ABC):
    """The protocol: call it for the scores; ask :meth:`as_dot` for the same as a dot product.

    Example:
        >>> class Near(Score):
        ...     def forward(self, q, k):
        ...         return -torch.cdist(q, k)
        >>> x = torch.eye(3)
        >>> sl.attention(x, x, x, score=Near()).argmax(-1).tolist()
        [0, 1, 2]
    """

    @abc.abstractmethod
    def forward(self, q: Float[Tensor, "... T Dq"], k: Float[Tensor, "... S Dk"]) -> Float[Tensor, "... T S"]:
        """Score every query against every key."""

    def as_dot(
        self,
        q: Float[Tensor, "... T Dq"],  # noqa: ARG002
        k: Float[Tensor, "... S Dk"],  # noqa: ARG002
    ) -> tuple[Tensor, Tensor, float] | None:
        """The same score as ``scale * q' @ k'ᵀ``: ``(q', k', scale)``, or None if it is no dot product."""
        return None


class _DotScore(Score):
    """A score that is a dot product after a map of q and k."""

    @abc.abstractmethod
    def as_dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]: ...

    def forward(self, q: Float[Tensor, "... T Dq"], k: Float[Tensor, "... S Dk"]) -> Float[Tensor, "... T S"]:
        check_rows(q=q, k=k)
        q, k, scale = self.as_dot(q, k)
        check_qkv(q, k, k)
        leading(q, k, k)
        return q @ k.mT * scale


class Dot(_DotScore):
    """s·h: the match of two vectors, longer ones louder.

    Example:
        >>> Dot()(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
        tensor([[11.]])
    """

    def as_dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        check_same_width(q, k)
        return q, k, 1.0


class ScaledDot(_DotScore):
    """s·h / √d: the dot product of random vectors has variance d, this has variance one.

    Example:
        >>> ScaledDot()(torch.ones(1, 4), torch.ones(1, 4))             # 4 / 2
        tensor([[2.]])
    """

    def as_dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        check_same_width(q, k)
        return q, k, 1 / math.sqrt(q.size(-1))


class Cosine(_DotScore):
    """s·h / (‖s‖ ‖h‖): the angle alone. A zero vector scores zero.

    Example:
        >>> Cosine()(torch.tensor([[3.0, 0.0]]), torch.tensor([[5.0, 0.0], [0.0, 2.0]]))
        tensor([[1., 0.]])
    """

    def as_dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        check_same_width(q, k)
        return _unit(q), _unit(k), 1.0


class General(_DotScore):
    """sᵀ W h: a learned bilinear form, so queries and keys may differ in width.

    Example:
        >>> General(3, 5)(torch.randn(7, 3), torch.randn(11, 5)).shape
        torch.Size([7, 11])
    """

    def __init__(self, d_q: int, d_k: int) -> None:
        super().__init__()
        _check_widths(d_q=d_q, d_k=d_k)
        self.W = _matrix(d_q, d_k)

    def as_dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        _check_fits(q, k, self.W.size(0), self.W.size(1), self.W)
        return q @ self.W, k, 1.0


class LowRank(_DotScore):
    """(U s)ᵀ (V h): General with W = Uᵀ V of low rank, rank·(d_q + d_k) parameters instead of d_q·d_k.

    Example:
        >>> sum(p.numel() for p in LowRank(30, 50, rank=2).parameters())
        160
    """

    def __init__(self, d_q: int, d_k: int, rank: int) -> None:
        super().__init__()
        _check_widths(d_q=d_q, d_k=d_k, rank=rank)
        self.U = _matrix(rank, d_q)
        self.V = _matrix(rank, d_k)

    def as_dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        _check_fits(q, k, self.U.size(1), self.V.size(1), self.U)
        return F.linear(q, self.U), F.linear(k, self.V), 1.0


class Additive(Score):
    """vᵀ tanh(W h + V s): a small network judges each pair (Bahdanau et al., 2015).

    The ``(T, S, d_attn)`` tensor of hidden values is never stored, forward or backward.

    Example:
        >>> Additive(3, 5, d_attn=2)(torch.randn(7, 3), torch.randn(11, 5)).shape
        torch.Size([7, 11])
    """

    def __init__(self, d_q: int, d_k: int, d_attn: int) -> None:
        super().__init__()
        _check_widths(d_q=d_q, d_k=d_k, d_attn=d_attn)
        self.W = _matrix(d_attn, d_k)
        self.V = _matrix(d_attn, d_q)
        self.v = nn.Parameter(torch.empty(d_attn))
        nn.init.uniform_(self.v, -1 / math.sqrt(d_attn), 1 / math.sqrt(d_attn))

    def forward(self, q: Float[Tensor, "... T Dq"], k: Float[Tensor, "... S Dk"]) -> Float[Tensor, "... T S"]:
        """Score every query against every key, a tile of hidden values at a time."""
        check_rows(q=q, k=k)
        leading(q, k, k)
        return additive_scores(*self.projected(q, k), self.v)

    def projected(
        self, q: Float[Tensor, "... T Dq"], k: Float[Tensor, "... S Dk"]
    ) -> tuple[Float[Tensor, "... T r"], Float[Tensor, "... S r"]]:
        """V s and W h, for every query and every key: the two halves of the hidden layer."""
        _check_fits(q, k, self.V.size(1), self.W.size(1), self.W)
        return F.linear(q, self.V), F.linear(k, self.W)


_NAMED: dict[str, type[Score]] = {"dot": Dot, "scaled_dot": ScaledDot, "cosine": Cosine}
_BUILT = {
    "general": "General(d_q, d_k)",
    "low_rank": "LowRank(d_q, d_k, rank)",
    "additive": "Additive(d_q, d_k, d_attn)",
}


def named(score: str | Score) -> Score:
    """Take a score, or the name of one without parameters.

    Example:
        >>> named("cosine")
        Cosine()
    """
    if isinstance(score, Score):
        return score
    if not isinstance(score, str):
        raise TypeError(
            "score must be an instance of sl.scores.Score or the name of one, got "
            f"{f'the class {score.__name__}' if isinstance(score, type) else type(score).__name__}; "
            "sl.scores.Dot() is an instance, and your own derives from sl.scores.Score"
        )
    if score in _BUILT:
        raise ValueError(
            f"score {score!r} has parameters to learn, so it can't be asked for by name; "
            f"build it once, sl.scores.{_BUILT[score]}, and pass that"
        )
    if score not in _NAMED:
        raise ValueError(f"unknown score {score!r}, {did_you_mean(score, [*_NAMED, *_BUILT])}")
    return _NAMED[score]()


def _unit(x: Tensor) -> Tensor:
    """Scale to length one, however short or long; a zero vector stays zero, and so does its gradient."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    largest = wide.detach().abs().amax(-1, keepdim=True)
    wide = wide / torch.where(largest > 0, largest, 1.0)  # the squares can neither vanish nor overflow
    squares = wide.square().sum(-1, keepdim=True)
    return (wide * torch.where(squares > 0, squares, 1.0).rsqrt() * (squares > 0)).to(x.dtype)


def _check_widths(**widths: int) -> None:
    for name, width in widths.items():
        check_integer(name, width, at_least=1)


def _matrix(rows: int, columns: int) -> nn.Parameter:
    check_memory(4 * rows * columns, "the score's matrix", "choose smaller widths")
    return cast(nn.Parameter, nn.init.xavier_uniform_(nn.Parameter(torch.empty(rows, columns))))


def _check_fits(q: Tensor, k: Tensor, d_q: int, d_k: int, weight: Tensor) -> None:
    if (q.size(-1), k.size(-1)) != (d_q, d_k):
        raise ValueError(
            f"this score was built for d_q={d_q} and d_k={d_k}, got widths {q.size(-1)} and {k.size(-1)} "
            f"for {shown(q=q, k=k)}; build it with the widths of q and k"
        )
    if {x.device for x in (q, k, weight)} != {q.device} or (
        {x.dtype for x in (q, k, weight)} != {q.dtype} and not are_cast(q, k, weight)
    ):
        kinds = ", ".join(f"{name} {x.dtype} on {x.device}" for name, x in (("q", q), ("k", k)))
        raise TypeError(
            "q, k and the parameters of a score must share one dtype and device, got "
            f"{kinds} and parameters {weight.dtype} on {weight.device}; score.to(q) converts the score"
        )
