"""From sentences to translations: batched, in the order they came, with what was looked at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sightline.data.batches import pad
from sightline.data.pair_tokens import PairTokens
from sightline.decode.search import Hypotheses, beam, greedy
from sightline.models.without_cudnn_sdpa import without_cudnn_sdpa
from sightline.shapes import Float

__all__ = ["Translation", "translate"]

_MORE, _TIMES = 10, 2  # a translation has at most twice the tokens of its source, and ten


@dataclass(frozen=True, kw_only=True, slots=True)
class Translation:
    """A sentence in the other language.

    Attributes:
        source: What was translated.
        text: The translation.
        score: Its log-probability, normalised by length as the search does.
        read: The tokens of the source, its end included.
        written: The tokens of the translation.
        ended: Whether the model ended it, rather than the limit of its length.
        weights: Row t are the weights with which token t was chosen, for each head; None if not looked.
    """

    source: str
    text: str
    score: float
    read: list[str]
    written: list[str]
    ended: bool = True
    weights: Float[Tensor, "H T S"] | None = None


@without_cudnn_sdpa()
@torch.no_grad()
def translate(
    model: Any,
    tokens: PairTokens,
    texts: Sequence[str],
    *,
    width: int = 5,
    alpha: float = 1.0,
    look: bool = False,
    batch_size: int = 128,
) -> list[Translation]:
    """Translate some texts, in eval; sentences of like length go together.

    Args:
        model: A translator, on its device.
        tokens: Its tokenizers.
        texts: At least one letter each.
        width: Of the beam; 1 is greedy.
        alpha: Strength of the length normalisation; higher ones favour long translations.
        look: Whether to hand out weights.
        batch_size: Sentences at a time.
    """
    for i, text in enumerate(texts, 1):
        if not text.strip():
            raise ValueError(f"there must be something to translate, text {i} of {len(texts)} is {text!r}")
    was_training = model.training
    model.eval()
    try:
        return _translated(model, tokens, texts, width, alpha, look, batch_size)
    finally:
        model.train(was_training)


def _translated(
    model: Any,
    tokens: PairTokens,
    texts: Sequence[str],
    width: int,
    alpha: float,
    look: bool,
    batch_size: int,
) -> list[Translation]:
    rows = [tokens.read(text) for text in texts]
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    found: dict[int, Translation] = {}
    device = next(model.parameters()).device
    for top in range(0, len(order), batch_size):
        chosen = order[top : top + batch_size]
        limits = [min(model.config.max_length, _TIMES * len(rows[i]) + _MORE) for i in chosen]
        state = model.start(pad([rows[i] for i in chosen]).to(device), look=look)
        decoded = (
            greedy(model, state, max_length=limits)
            if width == 1
            else beam(model, state, width=width, alpha=alpha, max_length=limits)
        )
        found.update(_read(decoded.cpu(), chosen, texts, rows, limits, tokens))
    return [found[i] for i in range(len(texts))]


def _read(
    decoded: Hypotheses,
    chosen: Sequence[int],
    texts: Sequence[str],
    rows: Sequence[Sequence[int]],
    limits: Sequence[int],
    tokens: PairTokens,
) -> dict[int, Translation]:
    found = {}
    for j, (i, best) in enumerate(zip(chosen, decoded.lists(), strict=True)):
        weights = None
        if decoded.attention_weights is not None:
            t, s = len(best[0]), len(rows[i])
            weights = decoded.attention_weights[j, 0, :t, :, :s].transpose(0, 1)  # (H, T, S)
        found[i] = Translation(
            source=texts[i],
            text=tokens.target.decode(best[0]),
            score=float(decoded.scores[j, 0]),
            read=tokens.source.words(rows[i]),
            written=tokens.target.words(best[0]),
            ended=len(best[0]) < limits[j],  # the end would have been one more
            weights=weights,
        )
    return found
