"""The loss of captions: a picture is encoded once, and all its captions are read from it."""

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.data.tokens import BOS, PAD, UNK
from sightline.models.caption_encoders import GridEncoder
from sightline.models.captioner import Captioner
from sightline.shapes import Float, Int
from sightline.train.losses import symmetric_kl
from sightline.train.objective import Loss

__all__ = ["caption_loss", "encode_grids"]


def encode_grids(model: Captioner, images: Float[Tensor, "B ..."]) -> Float[Tensor, "B ..."]:
    """The grids of a pretrained network, so that it sees pictures once; pictures for any other encoder."""
    encoder = model.encoder
    return encoder.features(images) if isinstance(encoder, GridEncoder) and images.dim() == 4 else images


def caption_loss(
    model: Captioner,
    images: Float[Tensor, "B ..."],
    ids: Int[Tensor, "B C L"],
    *,
    smoothing: float = 0.0,
    word_dropout: float = 0.0,
    consistency: float = 0.0,
) -> Loss:
    """Cross-entropy of every word of all captions; a picture is encoded once for all of its own.

    Args:
        model: Its decoder takes several captions for each encoded picture.
        images: What the encoder takes.
        ids: BOS, words, EOS, padded.
        smoothing: Probability taken from the right word and spread over all.
        word_dropout: Share of the words that the decoder reads as unknown.
        consistency: Weight of the divergence between two passes, which drop other activations and hide other
            words (R-Drop: Liang et al., 2021).
    """
    if consistency:  # the second half of every batch is the first one again
        images, ids = torch.cat([images, images]), torch.cat([ids, ids])
    rows = ids.flatten(0, 1)  # (B * C, L), or twice as many
    read, written = rows[:, :-1], rows[:, 1:]
    if word_dropout:
        drop = (torch.rand(read.shape, device=read.device) < word_dropout) & (read != PAD) & (read != BOS)
        read = read.masked_fill(drop, UNK)
    logits = model.decoder(model.encode(images), read)
    received = None
    if isinstance(logits, tuple):
        logits, received = logits
    logits = logits.flatten(0, 1).float()  # (N, V)
    total = F.cross_entropy(
        logits, written.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum"
    )
    terms = (written != PAD).sum()
    if consistency:
        one, other = logits.log_softmax(-1).chunk(2)
        divergence = symmetric_kl(one, other)
        total = total + consistency * (divergence * (written.flatten()[: len(one)] != PAD)).sum()
    if received is not None and model.regularised and model.training:
        return Loss(total, terms, mean=model.regulariser(received), mean_count=float(len(received)))
    return Loss(total, terms)
