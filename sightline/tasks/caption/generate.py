"""What a captioner says of pictures: the caption, its tokens, and where each of them looked."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from sightline.data.images import normalise
from sightline.data.tokens import UNSAID, Tokenizer
from sightline.decode.search import Hypotheses, sample
from sightline.decode.search import beam as beam_search
from sightline.models.captioner import Captioner
from sightline.shapes import Float, Shaped

__all__ = ["Chance", "Said", "say"]

_BEGINS = "▁"  # before the first piece of a word


@dataclass(frozen=True)
class Said:
    """One caption.

    Attributes:
        text: The whole.
        words: Its words; where the model writes pieces of words, those of one word are put together.
        weights: ``(T, H, P)``, where each word looked, the mean over its pieces; None unless asked for.
        score: Its log-probability; of a search, divided by its length to the power of alpha.
    """

    text: str
    words: tuple[str, ...]
    weights: Float[Tensor, "T H P"] | None
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Chance:
    """How captions are drawn by chance: see :func:`sightline.decode.search.sample`."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"seed must be at least 0 and below 2 ** 63, got {self.seed}")


def say(
    model: Captioner,
    tokenizer: Tokenizer,
    images: Shaped[Tensor, "B 3 h w"],
    *,
    beam: int = 5,
    n_best: int = 1,
    alpha: float = 1.0,
    chance: Chance | None = None,
    look: bool | Sequence[int] = False,
    batch_size: int = 64,
) -> Iterator[list[Said]]:
    """The n best captions of each picture, best first; or n that chance draws.

    Args:
        model: In eval, on the device it should run on.
        tokenizer: The run's own.
        images: Bytes, squares of the model's ``image_size``.
        beam: Width of the search; 1 is greedy.
        n_best: How many captions of each picture, of a search at most its width.
        alpha: A larger one prefers longer captions.
        chance: Draw the captions instead of searching for them.
        look: Whether to keep where each token looked; or the decoder layers to keep it of.
        batch_size: Pictures decoded together.
    """
    device = next(model.parameters()).device
    search: Callable[..., Hypotheses] = (
        partial(beam_search, width=beam, n_best=n_best, alpha=alpha)
        if chance is None
        else partial(
            sample,
            samples=n_best,
            temperature=chance.temperature,
            top_k=chance.top_k,
            top_p=chance.top_p,
            generator=torch.Generator(device).manual_seed(chance.seed),
        )
    )
    for chunk in images.split(batch_size):
        state = model.start(normalise(chunk.to(device)), look=look)
        found = search(model, state, max_length=model.config.max_length, forbidden=UNSAID).cpu()
        for i, ranked in enumerate(found.lists()):
            scores = found.scores[i].tolist()
            yield [
                Said(tokenizer.decode(ids), *_whole(tokenizer.words(ids), found, i, k), scores[k])
                for k, ids in enumerate(ranked)
                if k == 0 or scores[k] > -torch.inf
            ]


def _whole(pieces: Sequence[str], found: Hypotheses, i: int, k: int) -> tuple[tuple[str, ...], Tensor | None]:
    """Words from pieces, and the mean of their weights; what is a word already stays as it is."""
    are_pieces = any(piece.startswith(_BEGINS) for piece in pieces)
    starts = [t for t, p in enumerate(pieces) if t == 0 or not are_pieces or p.startswith(_BEGINS)]
    spans = [range(a, b) for a, b in zip(starts, [*starts[1:], len(pieces)], strict=False)]
    words = tuple("".join(pieces[t] for t in span).removeprefix(_BEGINS) for span in spans)
    if found.attention_weights is None:
        return words, None
    looked = found.attention_weights[i, k]  # (L, H, P)
    means = [looked[span.start : span.stop].mean(0) for span in spans]
    return words, torch.stack(means) if means else looked[:0]
