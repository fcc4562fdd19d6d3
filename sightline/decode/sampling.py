"""Greedy decoding and sampling, one token after the other."""

import math
from collections.abc import Sequence
from typing import SupportsIndex

import torch
from torch import Tensor

from sightline.data.tokens import BOS, EOS, PAD
from sightline.decode.hypotheses import Hypotheses, all_done, column_index, limits
from sightline.decode.protocol import S, StepModel, branch
from sightline.shapes import Float, Int

__all__ = ["greedy", "sample", "truncate"]


@torch.no_grad()
def greedy(
    model: StepModel[S],
    state: S,
    *,
    max_length: SupportsIndex | Sequence[int],
    bos: int = BOS,
    eos: int = EOS,
    forbidden: tuple[int, ...] = (PAD, BOS),
) -> Hypotheses:
    """The likeliest token at every step: one sequence for each input, K = 1.

    Args:
        model: Steps from a state to the next.
        state: Where to start: one row for each input.
        max_length: Most tokens of a sequence, its end included: one number, or one for each input.
        bos, eos: The ids of the first and the last token.
        forbidden: Ids that are never chosen.
    """
    return _walk(model, state, 1, _likeliest, max_length, bos, eos, forbidden)


@torch.no_grad()
def sample(
    model: StepModel[S],
    state: S,
    *,
    samples: int = 1,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    max_length: SupportsIndex | Sequence[int],
    bos: int = BOS,
    eos: int = EOS,
    forbidden: tuple[int, ...] = (PAD, BOS),
) -> Hypotheses:
    """Sequences drawn token by token, ``samples`` of them for each input.

    Args:
        model, state, max_length, bos, eos, forbidden: As for :func:`greedy`.
        samples: Sequences drawn for each input, K; they share what was encoded.
        temperature: Divides the log-probabilities: below 1 bolder, above 1 wilder.
        top_k: Draw among the so many likeliest tokens only.
        top_p: Draw among the likeliest tokens that together reach this probability.
        generator: The source of chance, on the state's device.

    Returns:
        The sequences in the order drawn; ``scores`` are their log-probabilities under the model itself.
    """
    for name, count in (("samples", samples), ("top_k", top_k)):
        if count is not None and count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
    if not 0 < temperature < math.inf:
        raise ValueError(
            f"temperature must be above 0 and finite, got {temperature}; greedy takes the likeliest"
        )
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1, got {top_p}")

    def drawn(log_probs: Float[Tensor, "N V"]) -> Int[Tensor, " N"]:
        chances = truncate(log_probs / temperature, top_k=top_k, top_p=top_p).softmax(-1)
        return chances.multinomial(1, generator=generator).squeeze(1)

    return _walk(model, branch(state, samples), samples, drawn, max_length, bos, eos, forbidden)


def truncate(
    log_probs: Float[Tensor, "N V"], *, top_k: int | None = None, top_p: float | None = None
) -> Float[Tensor, "N V"]:
    """The same with minus infinity for all but the likeliest tokens.

    Example:
        >>> truncate(torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log(), top_p=0.7).exp()
        tensor([[0.5000, 0.3000, 0.0000, 0.0000]])
    """
    if top_k is not None and top_k < log_probs.size(-1):
        least = log_probs.topk(top_k).values[:, -1:]
        log_probs = log_probs.masked_fill(log_probs < least, -torch.inf)
    if top_p is not None and top_p < 1:
        ordered, at = log_probs.softmax(-1).sort(-1, descending=True)
        before = ordered.cumsum(-1) - ordered  # what the likelier ones have reached without this one
        drop = torch.zeros_like(log_probs, dtype=torch.bool).scatter(1, at, before >= top_p)
        log_probs = log_probs.masked_fill(drop, -torch.inf)
    return log_probs


def _likeliest(log_probs: Float[Tensor, "N V"]) -> Int[Tensor, " N"]:
    return log_probs.argmax(-1)


def _walk(
    model: StepModel[S],
    state: S,
    width: int,
    choose: object,
    max_length: SupportsIndex | Sequence[int],
    bos: int,
    eos: int,
    forbidden: tuple[int, ...],
) -> Hypotheses:
    """Go on with what ``choose`` takes until all have ended; nothing ever branches or is reordered."""
    assert callable(choose)  # noqa: S101
    n, device = len(state), state.device
    limit = limits(max_length, n // width, device)
    never = column_index(forbidden, device)
    ids = torch.full((n,), bos, device=device)
    scores = torch.zeros(n, device=device)
    lengths = torch.zeros_like(ids)
    alive = torch.ones_like(ids, dtype=torch.bool)
    upto = limit.each.repeat_interleave(width)
    taken, looks = [], []
    for t in range(limit.most):
        log_probs, state = model.step(state, ids)
        ids = choose(log_probs.index_fill(1, never, -torch.inf))
        scores = scores + log_probs.gather(1, ids[:, None]).squeeze(1).where(alive, 0.0)
        alive = alive & (ids != eos)
        lengths = lengths + alive
        ids = ids.where(alive, PAD)
        taken.append(ids)
        if state.attention_weights is not None:
            looks.append(state.attention_weights * alive[:, None, None])
        if t + 1 in limit.steps:
            alive = alive & (upto > t + 1)
        if all_done(~alive, t):
            break
    rows = (-1, width)
    return Hypotheses(
        ids=torch.stack(taken, dim=1).unflatten(0, rows),
        lengths=lengths.unflatten(0, rows),
        scores=scores.unflatten(0, rows),
        attention_weights=torch.stack(looks, dim=1).unflatten(0, rows) if looks else None,
    )
