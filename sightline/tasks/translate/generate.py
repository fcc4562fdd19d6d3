"""From sentences to translations: batched, in the order they came, with what was looked at."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sightline.data.batches import pad
from sightline.data.pair_tokens import PairTokens
from sightline.decode.search import Hypotheses, beam, greedy
from sightline.models.rnn import RecurrentTranslator
from sightline.models.translator import Translator
from sightline.models.without_cudnn_sdpa import without_cudnn_sdpa
from sightline.shapes import Float

__all__ = ["AnyTranslator", "Translation", "generate_translations", "length_limit"]

AnyTranslator = Translator | RecurrentTranslator

_MORE, _TIMES = 10, 2  # a translation has at most twice the tokens of its source, and ten


@dataclass(frozen=True, kw_only=True, slots=True)
class Translation:
    """A sentence in the other language.

    Attributes:
        source: What was translated.
        text: The best translation.
        score: Its log-probability, normalised by length as the search does.
        hypotheses: The best translations and their scores, best first.
        source_tokens: The tokens of the source, its end included.
        target_tokens: The tokens of the translation.
        weights: With which token t was chosen, by layer and head; None unless asked for.
    """

    source: str
    text: str
    score: float
    hypotheses: list[tuple[str, float]]
    source_tokens: list[str]
    target_tokens: list[str]
    weights: Float[Tensor, "L H T S"] | None = None


def length_limit(model: AnyTranslator, n_source: int) -> int:
    """The most tokens of a translation of ``n_source`` tokens.

    It is no longer than those of the training, unless the source is: then as long as positions reach.
    """
    trained, most = model.config.max_length, _TIMES * n_source + _MORE
    return min(trained, most) if n_source <= trained or model.config.longest is not None else most


@without_cudnn_sdpa()
@torch.no_grad()
def generate_translations(
    model: AnyTranslator,
    tokens: PairTokens,
    texts: Sequence[str],
    *,
    width: int = 5,
    n_best: int = 1,
    alpha: float = 1.0,
    attention: bool = False,
    batch_size: int = 128,
    each: Callable[..., Iterable[Any]] = map,
) -> list[Translation]:
    """Translate some texts, in eval; sentences of like length go together.

    Args:
        model: A translator, on its device.
        tokens: Its tokenizers.
        texts: At least one letter each.
        width: Of the beam; 1 is greedy.
        n_best: Translations of each text, at most ``width``.
        alpha: Strength of the length normalisation; higher ones favour long translations.
        attention: Whether to hand out weights.
        batch_size: Sentences at a time.
        each: Calls a function for each batch, as ``map`` does; several processes may share them.
    """
    for i, text in enumerate(texts, 1):
        if not text.strip():
            raise ValueError(f"there must be something to translate, text {i} of {len(texts)} is {text!r}")
    was_training = model.training
    model.eval()
    try:
        return _by_length(model, tokens, texts, (width, n_best, alpha), attention, batch_size, each)
    finally:
        model.train(was_training)


def _by_length(
    model: AnyTranslator,
    tokens: PairTokens,
    texts: Sequence[str],
    search: tuple[int, int, float],
    attention: bool,
    batch_size: int,
    each: Callable[..., Iterable[Any]],
) -> list[Translation]:
    width, n_best, alpha = search
    rows = [tokens.read(text) for text in texts]
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    device = next(model.parameters()).device
    searched: Any = model

    def translate(chosen: Sequence[int]) -> list[Translation]:
        limits = [length_limit(model, len(rows[i])) for i in chosen]
        state = model.start(pad([rows[i] for i in chosen]).to(device), look=attention)
        decoded = (
            greedy(searched, state, max_length=limits)
            if width == 1
            else beam(searched, state, width=width, n_best=n_best, alpha=alpha, max_length=limits)
        ).cpu()
        return [_translation(model, tokens, texts[i], rows[i], decoded, j) for j, i in enumerate(chosen)]

    batches = [order[top : top + batch_size] for top in range(0, len(order), batch_size)]
    found = [one for batch in each(translate, batches) for one in batch]
    translations = dict(zip(order, found, strict=True))
    return [translations[i] for i in range(len(texts))]


def _translation(
    model: AnyTranslator,
    tokens: PairTokens,
    text: str,
    row: Sequence[int],
    decoded: Hypotheses,
    j: int,
) -> Translation:
    """What the search found for input j of its batch."""
    lengths, scores = decoded.lengths[j].tolist(), decoded.scores[j].tolist()
    ids = [one[:length] for one, length in zip(decoded.ids[j].tolist(), lengths, strict=True)]
    hypotheses = [
        (tokens.target.decode(one), score)
        for one, score in zip(ids, scores, strict=True)
        if score > float("-inf") or one is ids[0]
    ]
    weights = None
    if decoded.attention_weights is not None:
        of_best = decoded.attention_weights[j, 0, : lengths[0], :, : len(row)]  # (T, L * H, S)
        n_layers = model.config.n_layers if isinstance(model, Translator) else 1
        weights = of_best.transpose(0, 1).unflatten(0, (n_layers, -1))
    return Translation(
        source=text,
        text=hypotheses[0][0],
        score=hypotheses[0][1],
        hypotheses=hypotheses,
        source_tokens=tokens.source.words(row),
        target_tokens=tokens.target.words(ids[0]),
        weights=weights,
    )
