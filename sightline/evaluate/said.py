"""What a captioner says of pictures: the caption, its tokens, and where each of them looked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sightline.data.images import normalise
from sightline.data.tokens import BOS, PAD, UNK, Tokenizer
from sightline.decode.search import beam as beam_search
from sightline.models.captioner import Captioner
from sightline.shapes import Float, Shaped

__all__ = ["Said", "say"]

_FORBIDDEN = (PAD, BOS, UNK)  # a caption never says that it does not know a word


@dataclass(frozen=True)
class Said:
    """One caption.

    Attributes:
        text: The whole.
        words: Its tokens as they are written, one for each step.
        score: Its log-probability, divided by its length to the power of alpha.
        weights: ``(T, H, P)``, where each token looked; None unless it was asked for.
    """

    text: str
    words: tuple[str, ...]
    score: float
    weights: Float[Tensor, "T H P"] | None


def say(
    model: Captioner,
    tokenizer: Tokenizer,
    images: Shaped[Tensor, "B 3 h w"],
    *,
    beam: int = 5,
    n_best: int = 1,
    alpha: float = 1.0,
    look: bool | Sequence[int] = False,
    batch_size: int = 64,
) -> Iterator[list[Said]]:
    """The n best captions of each picture, best first.

    Args:
        model: In eval, on the device it should run on.
        tokenizer: The run's own.
        images: Bytes, squares of the model's ``image_size``.
        beam: Width of the search; 1 is greedy.
        n_best: How many captions of each picture, at most the width.
        alpha: A larger one prefers longer captions.
        look: Whether to keep where each token looked; or the decoder layers to keep it of.
        batch_size: Pictures decoded together.
    """
    device = next(model.parameters()).device
    for chunk in images.split(batch_size):
        state = model.start(normalise(chunk.to(device)), look=look)
        found = beam_search(
            model,
            state,
            width=beam,
            n_best=n_best,
            alpha=alpha,
            max_length=model.config.max_length,
            forbidden=_FORBIDDEN,
        ).cpu()
        for i, ranked in enumerate(found.lists()):
            scores = found.scores[i].tolist()
            yield [
                Said(
                    tokenizer.decode(ids),
                    tuple(tokenizer.words(ids)),
                    scores[k],
                    None if found.attended is None else found.attended[i, k, : len(ids)],
                )
                for k, ids in enumerate(ranked)
                if k == 0 or scores[k] > -torch.inf
            ]
