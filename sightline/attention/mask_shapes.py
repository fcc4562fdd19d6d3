"""How the shape of a mask is read beside that of the scores, (..., T, S)."""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["aligned", "cut", "fit", "fit_lengths", "trailing_ones"]


def trailing_ones(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """Give a shape more dimensions, each of size one, at its end."""
    return (*shape, *(1,) * (rank - len(shape)))


def aligned(shape: Sequence[int], rank: int, *, batch_first: bool) -> tuple[int, ...]:
    """Give the shape of a mask the rank of the scores.

    Shapes line up at the end, as everywhere in torch, but for one case: a boolean mask of three
    dimensions belongs to the batch, ``(B, 1, S)`` or ``(B, T, S)``, and is the same for all heads.
    """
    if batch_first and len(shape) == 3 < rank:
        return (*trailing_ones(shape[:1], rank - 2), *shape[1:])
    return (*(1,) * (rank - len(shape)), *shape)


def _broadcasts(shape: Sequence[int], target: Sequence[int]) -> bool:
    return len(shape) == len(target) and all(n in (1, m) for n, m in zip(shape, target, strict=True))


def fit_lengths(lengths: Tensor, lead: tuple[int, ...]) -> Tensor:
    """(B,) -> (B, 1, ..., 1), ready to be compared with the positions of the keys."""
    shape = trailing_ones(lengths.shape, len(lead))
    if not _broadcasts(shape, lead):
        raise ValueError(
            "padding's lengths must line up with the leading dimensions of q, k and v, "
            f"got lengths {tuple(lengths.shape)} for {tuple(lead)}; give one length for each item"
        )
    return lengths.reshape(*shape, 1, 1)


def fit(x: Tensor, scores: tuple[int, ...], *, batch_first: bool) -> Tensor:
    """Give a mask the rank of the scores, or say why it does not fit."""
    if x.dim() > len(scores):
        raise ValueError(
            f"the mask has more dimensions than the scores (..., T, S) = {scores}, got a mask of shape "
            f"{tuple(x.shape)}; squeeze it, or give q, k and v as many"
        )
    if x.dim() == 3 < len(scores) and _could_be_heads(x, scores, batch_first=batch_first):
        kind = "boolean" if batch_first else "float"
        raise ValueError(
            f"a {kind} mask of three dimensions could mean the batch or the heads of scores {scores}, got "
            f"{tuple(x.shape)}; write mask[:, None] for (B, T, S) and mask[None] for (H, T, S)"
        )
    shape = aligned(x.shape, len(scores), batch_first=batch_first)
    if not _broadcasts(shape, scores):
        read = f", read as {shape}" if shape != tuple(x.shape) else ""
        missing = any(_broadcasts(x.shape, some) for some in itertools.combinations(scores, x.dim()))
        remedy = (
            "insert the missing dimensions with mask[:, None] or mask[None]"
            if missing
            else "no dimension is missing, a size is wrong: each must be 1 or that of the scores"
        )
        raise ValueError(
            f"the mask must broadcast to the scores (..., T, S) = {scores}, got a mask of shape "
            f"{tuple(x.shape)}{read}; {remedy}"
        )
    return x.reshape(shape)


def _could_be_heads(x: Tensor, scores: tuple[int, ...], *, batch_first: bool) -> bool:
    """Whether (N, T, S) fits the batch and the heads, both N; a boolean (N, 1, S) is always of the batch."""
    if batch_first and (x.size(1) == 1 or torch.compiler.is_compiling()):  # a traced batch has no size yet
        return False
    return scores[0] == x.size(0) == scores[-3] > 1


def cut(x: Tensor, queries: tuple[int, int], keys: tuple[int, int]) -> Tensor:
    """Slice the last two dimensions, leaving those of size one to broadcast."""
    rows = slice(*queries) if x.size(-2) != 1 else slice(None)
    columns = slice(*keys) if x.size(-1) != 1 else slice(None)
    return x[..., rows, columns]
