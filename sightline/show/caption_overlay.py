"""The record behind an overlay: an image, the words written about it, and where each word looked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sightline.messages import check_integer
from sightline.shapes import Float, Shaped, is_tensor

__all__ = ["Box", "CaptionOverlay"]

SHARES = 4  # the colour scale ends at this many even shares at least
_CONTENT_WORD = 4  # letters: articles and prepositions are shorter
Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels of the image


@dataclass(frozen=True, kw_only=True)
class CaptionOverlay:
    """An image with the words that a model wrote about it, and where it looked for each of them.

    Attributes:
        image: ``(3, h, w)`` uint8, or ``(1, h, w)`` for grey: the model's crop.
        words: One word, or piece of a word, per step.
        weights: ``(T, H, P)``: per word and head, the weight on each of P patches, row by row.
        grid: Rows and columns of patches.
        text: The whole caption. Default: the words joined by spaces.
        name: The name of the image.
        references: Captions that people wrote.
        score: The caption's score and its metric, as text.
        boxes: For some words, by index, the box of the object that the word names.
        note: A line under the caption, such as how the image was cropped.

    Example:
        >>> image, weights = torch.zeros(3, 8, 8, dtype=torch.uint8), torch.full((2, 1, 4), 0.25)
        >>> told = CaptionOverlay(image=image, words=["a", "star"], weights=weights, grid=(2, 2))
        >>> len(sl.show.overlay(told).axes) >= 2
        True
    """

    image: Shaped[Tensor, "C h w"]
    words: Sequence[str]
    weights: Float[Tensor, "T H P"]
    grid: tuple[int, int]
    text: str = ""
    name: str = ""
    references: Sequence[str] = ()
    score: str = ""
    boxes: Mapping[int, Box] = field(default_factory=dict)
    note: str = ""

    def __post_init__(self) -> None:
        check_image(self.image)
        is_tensor(self.weights, "weights")
        rows, columns = self.grid
        if self.weights.dim() != 3 or self.weights.size(2) != rows * columns or not self.weights.size(1):
            raise ValueError(
                f"weights must be (T, H, P) with P = {rows} x {columns} = {rows * columns} patches, got "
                f"shape {tuple(self.weights.shape)}"
            )
        if len(self.words) != self.weights.size(0):
            raise ValueError(
                f"each word needs its weights, got {len(self.words)} words and weights for "
                f"{self.weights.size(0)}"
            )

    @property
    def caption(self) -> str:
        """The whole caption."""
        return self.text or " ".join(self.words)

    @property
    def default_word(self) -> int | None:
        """The index of the word to show first; None where there is no word."""
        return default_word(self.words, self.maps().flatten(1), self.boxes)

    def brightest(self, head: int | None = None) -> float:
        """The weight at the bright end of the colour scale: the largest of all words, or four even shares.

        Four even shares are the minimum, so a head with nearly uniform weights stays dim.
        """
        maps = self.maps(head)
        return max(float(maps.max()) if maps.numel() else 0.0, SHARES / (self.grid[0] * self.grid[1]))

    def maps(self, head: int | None = None) -> Float[Tensor, "T rows columns"]:
        """The weights of each word on the grid: of one head, or the mean of all."""
        n_heads = self.weights.size(1)
        if head is not None:
            check_integer("head", head)
        if head is not None and not 0 <= head < n_heads:
            raise ValueError(
                f"head must be between 0 and {n_heads - 1}, the heads that looked, got {head}; "
                "leave it out for the mean of all"
            )
        weights = self.weights.detach().float().cpu()
        chosen = weights.mean(1) if head is None else weights[:, head]
        return chosen.unflatten(-1, self.grid)


def default_word(
    words: Sequence[str], weights: Float[Tensor, "T S"], boxes: Mapping[int, Box] | None = None
) -> int | None:
    """The index of the word to show first: one with a box, else the longer word with the largest weight.

    Example:
        >>> default_word(["a", "brown", "dog"], torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]))
        1
    """
    if boxes or not words:
        return min(boxes or (), default=None)
    peaks = weights.amax(-1).tolist()
    shortest = min(_CONTENT_WORD, max(map(len, words)))
    return max((i for i, word in enumerate(words) if len(word) >= shortest), key=lambda i: peaks[i])


def check_image(image: Tensor) -> None:
    """Raise ValueError unless the image is uint8 with one or three channels."""
    is_tensor(image, "image")
    if image.dtype != torch.uint8 or image.dim() != 3 or image.size(0) not in {1, 3}:
        raise ValueError(
            f"an image must be (3, h, w) or (1, h, w) of torch.uint8, got shape {tuple(image.shape)} of "
            f"{image.dtype}"
        )
