"""Beam search: keep the K likeliest prefixes of each input, and the K best finished sequences.

A step scores every continuation of every beginning and takes the 2 K likeliest of an input: at most K of
them end, so at least K go on. Those that end among the first K enter the input's pool, ranked by

    log p(y) / |y| ** alpha        |y| the number of tokens, the end included

and once the pool holds K, the input is done. Beginnings still open at ``max_length`` are ranked like all
others. With K = 1 this is greedy decoding; with K unbounded it is exhaustive search.
"""

from collections.abc import Sequence
from typing import NamedTuple, SupportsIndex

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.data.tokens import BOS, EOS, PAD
from sightline.decode.hypotheses import Hypotheses, HypothesisTree, column_index, limits, may_synchronise
from sightline.decode.protocol import S, StepModel, branch, reorder
from sightline.decode.trace import BeamTrace
from sightline.shapes import Float, Int

__all__ = ["beam", "top_k"]


class _Pool(NamedTuple):
    """The best that ended so far, K for each input, best first: scores, and ``length * K + row``."""

    scores: Float[Tensor, "B K"]
    ends: Int[Tensor, "B K"]

    @property
    def full(self) -> Tensor:
        """Whether an input has K finished sequences, (B, 1)."""
        return self.scores[:, -1:] != -torch.inf

    def add(self, scores: Float[Tensor, "B M"], ends: Int[Tensor, "B M"]) -> "_Pool":
        """Add finished sequences and keep the best K; a full pool stays as it is."""
        scores = scores.masked_fill(self.full, -torch.inf)
        best, at = torch.cat([self.scores, scores], 1).topk(self.scores.size(1))
        return _Pool(best, torch.cat([self.ends, ends], 1).gather(1, at))


@torch.no_grad()
def beam(
    model: StepModel[S],
    state: S,
    *,
    width: int = 5,
    n_best: int = 1,
    alpha: float = 1.0,
    max_length: SupportsIndex | Sequence[int],
    bos: int = BOS,
    eos: int = EOS,
    forbidden: tuple[int, ...] = (PAD, BOS),
    trace: BeamTrace | None = None,
) -> Hypotheses:
    """The likeliest sequences, by beam search.

    Args:
        model: Steps from a state to the next.
        state: Where to start: one row for each input.
        width: Beginnings kept for each input, K.
        n_best: Sequences handed back for each input, at most ``width``.
        alpha: Strength of the length normalisation; 0 for none, which favours short ones.
        max_length: Most tokens of a sequence, its end included: one number, or one for each input.
        bos, eos: The ids of the first and the last token.
        forbidden: Ids that are never chosen.
        trace: Is final every step of one input; a GPU then waits at each.

    Returns:
        ``n_best`` sequences for each input, best first. One that was still open at ``max_length`` is
        scored like the others, and has that length.
    """
    if width < 1:
        raise ValueError(f"a beam must be at least 1 wide, got {width}; 5 is usual, 1 is greedy")
    if not 1 <= n_best <= width:
        raise ValueError(
            f"n_best must be between 1 and the beam's width, got n_best={n_best} for a width of {width}"
        )
    b, k, device = len(state), width, state.device
    limit = limits(max_length, b, device)
    never = column_index(forbidden, device)
    tree = HypothesisTree()
    ids = torch.full((b,), bos, device=device)
    scores = torch.zeros(b, 1, device=device)
    pool = _Pool(torch.full((b, k), -torch.inf, device=device), ids[:, None].expand(b, k))
    first_rows = torch.arange(0, b * k, k, device=device)[:, None]
    every_row = torch.arange(k, device=device).expand(b, k)
    for t in range(limit.most):
        log_probs, state = model.step(state, ids)
        best, rows, tokens = _candidates(log_probs, scores, never, k)
        ended = tokens == eos
        final = (best / (t + 1) ** alpha).where(ended, -torch.inf)
        pool = pool.add(final[:, :k], t * k + rows[:, :k])
        before, (scores, at) = scores, best.masked_fill(ended, -torch.inf).topk(k)
        if trace is not None:
            trace.add(
                before=before,
                candidates=(best, rows, tokens),
                kept=at,
                ended=ended,
                final=final,
                weights=state.attention_weights,
            )
        parents, tokens = rows.gather(1, at), tokens.gather(1, at)
        tree.grow(parents, tokens, state.attention_weights)
        if t + 1 in limit.steps:  # what is still open here is ranked like all others, and goes no further
            closes = limit.each[:, None] == t + 1
            cut = (scores / (t + 1) ** alpha).where(closes, -torch.inf)
            pool = pool.add(cut, (t + 1) * k + every_row)
            scores = scores.masked_fill(closes, -torch.inf)
        if may_synchronise(device, t) and bool(pool.full.all()):
            break
        state = branch(state, k) if t == 0 else reorder(state, (first_rows + parents).flatten())
        ids = tokens.flatten()
    scores, ends = pool.scores[:, :n_best], pool.ends[:, :n_best]
    ends = ends.where(scores > -torch.inf, 0)  # there were fewer: an empty one
    return tree.read(ends // k, ends % k, scores)


def _candidates(
    log_probs: Float[Tensor, "N V"], scores: Float[Tensor, "B W"], never: Int[Tensor, " F"], k: int
) -> tuple[Float[Tensor, "B M"], Int[Tensor, "B M"], Int[Tensor, "B M"]]:
    """The 2 K likeliest continuations of each input: scores, the rows they continue, their tokens.

    They are among the 2 K likeliest of each row. The large matrix is gone over once: what is forbidden is
    taken along and crossed out afterwards, and scores are added to the few that are left.
    """
    b, w = scores.shape
    few, tokens = top_k(log_probs, min(2 * k + never.size(0), log_probs.size(1)))  # (N, m)
    few = few.masked_fill((tokens.unsqueeze(-1) == never).any(-1), -torch.inf)
    m = few.size(1)
    total = (few.view(b, w, m) + scores.unsqueeze(-1)).flatten(1)
    best, at = total.topk(min(2 * k, w * m))
    if best.size(1) < k:  # fewer continuations than beams
        missing = (0, k - best.size(1))
        best, at = F.pad(best, missing, value=-torch.inf), F.pad(at, missing)
    return best, at // m, tokens.view(b, w * m).gather(1, at)


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
