"""CIDEr-D of captions given as ids, many at once and on their device: the reward of self-critical training.

CIDEr-D (Vedantam et al., 2015) weighs every n-gram by how few images of a corpus have it in their captions,
and compares the weighted counts of a caption with those of each reference:

    10 mean_n mean_refs  exp(-(difference of lengths)² / 2 σ²)  Σ min(c, r) r / (‖c‖ ‖r‖)

Here an n-gram of up to four ids is one 64-bit number, so that all comparisons are comparisons of numbers:
no dictionary, no host, a few milliseconds for a batch. The numbers are those of an evaluation.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from sightline.data.tokens import PAD
from sightline.shapes import Bool, Float, Int

__all__ = ["Cider"]

_ORDERS = 4
_BITS = 16  # of an id in an n-gram's number
_SIGMA = 6.0


class _Grams(NamedTuple):
    """The n-grams of one order in rows of ids."""

    keys: Int[Tensor, "... P"]
    real: Bool[Tensor, "... P"]
    counts: Float[Tensor, "... P"]  # how often this one is in its row
    weight: Float[Tensor, "... P"]  # by how few images it is known
    norm: Float[Tensor, "..."]


class Cider:
    """Scores captions of the images of a corpus against their references.

    Args:
        references: For each image its captions, padded with PAD; a row of PAD is no caption. Whether they
            end with EOS is the caller's choice, and the same for what is scored: with it, a caption that
            breaks off is punished.

    Raises:
        ValueError: If an image has no caption, or an id does not fit into 16 bits.

    Example:
        >>> corpus = torch.tensor([[[4, 5, 6, 7]], [[4, 8, 9, 7]], [[8, 4, 9, 5]]])   # three images
        >>> cider = Cider(corpus)
        >>> cider.score(torch.tensor([1]), torch.tensor([[[4, 8, 9, 7], [4, 5, 9, 7]]]))
        tensor([[10.0000,  2.5000]], dtype=torch.float64)
    """

    def __init__(self, references: Int[Tensor, "n C L"]) -> None:
        if int(references.max()) >= 1 << _BITS:
            raise ValueError(
                f"ids must be below {1 << _BITS} to be scored, got {int(references.max())}; learn fewer"
            )
        real = references[..., 0] != PAD
        if not bool(real.any(-1).all()):
            raise ValueError(f"image {int((~real.any(-1)).nonzero()[0])} has no caption to be scored against")
        self._real = real
        self._n_images = references.size(0)
        self._lengths = _length(references)
        self._known: list[tuple[Tensor, Tensor]] = [self._frequencies(references, n) for n in range(1, 5)]
        self._grams = [self._weighed(references, n) for n in range(1, 5)]

    def to(self, device: torch.device) -> "Cider":
        """Move everything to a device."""
        self._real, self._lengths = self._real.to(device), self._lengths.to(device)
        self._known = [(keys.to(device), weights.to(device)) for keys, weights in self._known]
        self._grams = [_Grams(*(x.to(device) for x in grams)) for grams in self._grams]
        return self

    def score(self, images: Int[Tensor, " B"], captions: Int[Tensor, "B K L"]) -> Float[Tensor, "B K"]:
        """CIDEr-D of K captions for each of some images of the corpus, in float64."""
        real = self._real[images][:, None]  # (B, 1, C)
        delta = _length(captions)[:, :, None] - self._lengths[images][:, None]  # (B, K, C)
        likeness = torch.zeros(1, dtype=torch.float64, device=captions.device)
        for n in range(1, _ORDERS + 1):
            if captions.size(-1) < n:
                break
            ours, theirs = self._weighed(captions, n), self._grams[n - 1]
            keys, there = theirs.keys[images], theirs.real[images]  # (B, C, Q)
            same = ours.keys[:, :, None, :, None] == keys[:, None, :, None, :]  # (B, K, C, P, Q)
            same &= ours.real[:, :, None, :, None] & there[:, None, :, None, :]
            found = same.sum(-1)  # how often each of our n-grams is in each reference
            counts = ours.counts[:, :, None]
            # A sum over positions counts an n-gram as often as it occurs: hence the division.
            shared = torch.minimum(counts, found) * found / counts.clamp(min=1) * ours.weight[:, :, None] ** 2
            norms = ours.norm[:, :, None] * theirs.norm[images][:, None]
            likeness = likeness + shared.sum(-1) / norms.where(norms > 0, 1.0)
        likeness = likeness / _ORDERS * torch.exp(-(delta.double() ** 2) / (2 * _SIGMA**2))
        return 10 * (likeness * real).sum(-1) / real.sum(-1)

    def _frequencies(self, references: Int[Tensor, "n C L"], n: int) -> tuple[Tensor, Tensor]:
        """The n-grams of the corpus in order, and their weights: log(images) - log(images that have it)."""
        keys, real = _keys(references, n)
        image = torch.arange(references.size(0), device=keys.device)[:, None, None].expand_as(keys)
        # A stable sort keeps the images of one n-gram in order: equal neighbours are one image's.
        ordered, at = keys[real].sort(stable=True)
        images = image[real][at]
        first = torch.ones_like(ordered, dtype=torch.bool)
        first[1:] = (ordered[1:] != ordered[:-1]) | (images[1:] != images[:-1])
        known, counts = torch.unique_consecutive(ordered[first], return_counts=True)
        return known, _log(self._n_images) - counts.double().log()

    def _weighed(self, ids: Int[Tensor, "... L"], n: int) -> _Grams:
        keys, real = _keys(ids, n)
        known, weights = self._known[n - 1]
        weight = torch.full(keys.shape, _log(self._n_images), dtype=torch.float64, device=keys.device)
        if known.numel() and keys.numel():
            at = torch.searchsorted(known, keys).clamp(max=known.numel() - 1)
            weight = weights[at].where(known[at] == keys, weight)
        weight = weight * real
        same = keys[..., :, None] == keys[..., None, :]
        counts = (same & real[..., None, :]).sum(-1).double() * real
        norm = (counts * weight**2).sum(-1).sqrt()
        return _Grams(keys, real, counts, weight, norm)


def _keys(ids: Int[Tensor, "... L"], n: int) -> tuple[Int[Tensor, "... P"], Bool[Tensor, "... P"]]:
    """The n-grams of rows of ids as numbers, and which of them are real; padding stands at the end."""
    places = max(0, ids.size(-1) - n + 1)
    keys = torch.zeros(*ids.shape[:-1], places, dtype=torch.long, device=ids.device)
    for k in range(n):
        keys = keys | (ids[..., k : k + places] << (_BITS * k))
    return keys, ids[..., n - 1 : n - 1 + places] != PAD


def _length(ids: Int[Tensor, "... L"]) -> Int[Tensor, "..."]:
    """How many pairs of words there are: what the original takes for the length."""
    return ((ids != PAD).sum(-1) - 1).clamp(min=0)


def _log(n: int) -> float:
    return float(torch.tensor(float(n), dtype=torch.float64).log())
