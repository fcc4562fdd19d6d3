"""Captions by a model: the text, its words, and what each of them looked at."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from sightline.data.images import normalise
from sightline.data.tokens import NEVER_GENERATED, Tokenizer
from sightline.decode.search import Hypotheses, sample
from sightline.decode.search import beam as beam_search
from sightline.models.captioner import Captioner
from sightline.settings import check, setting
from sightline.shapes import Float, Shaped

__all__ = ["Caption", "SamplingConfig", "generate_captions", "words_of_pieces"]

_WORD_START = "▁"  # before the first piece of a word
_SEEDS = 1 << 63


@dataclass(frozen=True)
class Caption:
    """One caption.

    Attributes:
        text: The whole.
        words: Its words; where the model writes pieces of words, those of one word are joined.
        weights: The attention of each word over the grid, the mean over its pieces; None unless asked for.
        score: Its log-probability; of a beam search, divided by its length to the power of alpha.
        ids: Its tokens, without BOS and EOS.
    """

    text: str
    words: tuple[str, ...]
    weights: Float[Tensor, "T H P"] | None
    score: float
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingConfig:
    """How captions are sampled: see :func:`sightline.decode.search.sample`."""

    temperature: float = setting(1.0, "Divides the log-probabilities.", above=0)
    top_k: int | None = setting(None, "Sample among the so many likeliest tokens only.", at_least=1)
    top_p: float | None = setting(
        None, "Sample among the likeliest tokens that together reach this probability.", above=0, at_most=1
    )
    seed: int = setting(0, "Fixes what is sampled.")

    def __post_init__(self) -> None:
        check(self)
        if not 0 <= self.seed < _SEEDS:
            raise ValueError(f"seed must be at least 0 and below 2 ** 63, got {self.seed}")

    def generator(self, device: torch.device) -> torch.Generator:
        """A generator that starts from the seed."""
        return torch.Generator(device).manual_seed(self.seed)


def generate_captions(
    model: Captioner,
    tokenizer: Tokenizer,
    images: Shaped[Tensor, "B 3 h w"],
    *,
    beam: int = 5,
    n_best: int = 1,
    alpha: float = 1.0,
    sampling: SamplingConfig | None = None,
    generator: torch.Generator | None = None,
    look: bool | Sequence[int] = False,
    batch_size: int = 64,
) -> Iterator[list[Caption]]:
    """The n best captions of each image, best first; or n samples.

    Args:
        model: In eval, on the device it should run on.
        tokenizer: The run's own.
        images: Bytes, squares of the model's ``image_size``.
        beam: Width of the search; 1 is greedy.
        n_best: How many captions of each image, of a search at most its width.
        alpha: A larger one prefers longer captions.
        sampling: Sample the captions instead of searching for them.
        generator: Of a sampling that goes on. Default: one that starts from the seed.
        look: Whether to keep what each token looked at; or the decoder layers to keep it of.
        batch_size: Images decoded together.
    """
    device = next(model.parameters()).device
    search: Callable[..., Hypotheses] = (
        partial(beam_search, width=beam, n_best=n_best, alpha=alpha)
        if sampling is None
        else partial(
            sample,
            samples=n_best,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            generator=sampling.generator(device) if generator is None else generator,
        )
    )
    for chunk in images.split(batch_size):
        state = model.start(normalise(chunk.to(device)), look=look)
        hypotheses = search(model, state, max_length=model.config.max_length, forbidden=NEVER_GENERATED).cpu()
        for i, ranked in enumerate(hypotheses.lists()):
            scores = hypotheses.scores[i].tolist()
            yield [
                Caption(
                    tokenizer.decode(ids),
                    *join_pieces(tokenizer.words(ids), _weights(hypotheses, i, k)),
                    scores[k],
                    tuple(ids),
                )
                for k, ids in enumerate(ranked)
                if k == 0 or scores[k] > -torch.inf
            ]


def join_pieces(
    pieces: Sequence[str], weights: Float[Tensor, "L H P"] | None
) -> tuple[tuple[str, ...], Float[Tensor, "T H P"] | None]:
    """Words from pieces, and the mean of their weights; what is a word already stays as it is.

    Args:
        pieces: Tokens; a ``▁`` stands before the first piece of a word.
        weights: Of each step, perhaps of further steps after the last piece; None where they are not known.

    Example:
        >>> join_pieces(["▁a", "▁stri", "ped", "▁ring"], None)
        (('a', 'striped', 'ring'), None)
    """
    starts = _word_starts(pieces)
    spans = [range(a, b) for a, b in zip(starts, [*starts[1:], len(pieces)], strict=False)]
    words = tuple("".join(pieces[t] for t in span).removeprefix(_WORD_START) for span in spans)
    if weights is None:
        return words, None
    means = [weights[span.start : span.stop].mean(0) for span in spans]
    return words, torch.stack(means) if means else weights[:0]


def words_of_pieces(pieces: Sequence[str]) -> list[int]:
    """Which word each piece belongs to.

    Example:
        >>> words_of_pieces(["▁a", "▁stri", "ped", "▁ring"])
        [0, 1, 1, 2]
    """
    starts = set(_word_starts(pieces))
    return [sum(t in starts for t in range(i + 1)) - 1 for i in range(len(pieces))]


def _word_starts(pieces: Sequence[str]) -> list[int]:
    are_pieces = any(piece.startswith(_WORD_START) for piece in pieces)
    return [t for t, p in enumerate(pieces) if t == 0 or not are_pieces or p.startswith(_WORD_START)]


def _weights(hypotheses: Hypotheses, i: int, k: int) -> Float[Tensor, "L H P"] | None:
    return None if hypotheses.attention_weights is None else hypotheses.attention_weights[i, k]
