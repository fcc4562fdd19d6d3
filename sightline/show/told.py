"""A picture, what was said of it, and where each word looked: what overlays, galleries and pages show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sightline.shapes import Float, Shaped, is_tensor

__all__ = ["Box", "Told"]

SHARES = 4
Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels of the picture


@dataclass(frozen=True, kw_only=True)
class Told:
    """A picture with the words that were generated for it.

    Attributes:
        image: ``(3, h, w)`` of bytes: what the model saw, cropped as it saw it.
        words: What it said, one for each step; pieces of words, if the model writes those.
        weights: ``(T, H, P)``: for each word and head, the weight on each of P patches, row by row.
        grid: Rows and columns of the patches.
        text: The sentence that they make. Default: the words with spaces between them.
        name: What to call the picture.
        references: What people said of it.
        score: How well it was told, and by which measure.
        boxes: For some words, by their place in the sentence, the box that they speak of.
    """

    image: Shaped[Tensor, "3 h w"]
    words: Sequence[str]
    weights: Float[Tensor, "T H P"]
    grid: tuple[int, int]
    text: str = ""
    name: str = ""
    references: Sequence[str] = ()
    score: str = ""
    boxes: Mapping[int, Box] = field(default_factory=dict)

    def __post_init__(self) -> None:
        is_tensor(self.image, "image")
        is_tensor(self.weights, "weights")
        if self.image.dtype != torch.uint8 or self.image.dim() != 3 or self.image.size(0) != 3:
            raise ValueError(
                f"a picture must be (3, h, w) of torch.uint8, got shape {tuple(self.image.shape)} of "
                f"{self.image.dtype}"
            )
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
        """The sentence."""
        return self.text or " ".join(self.words)

    @property
    def telling_word(self) -> int | None:
        """The word to show first: one whose box is known, else the longer word with the largest weight."""
        if self.boxes or not self.words:
            return min(self.boxes, default=None)
        peaks = self.maps().flatten(1).amax(-1).tolist()
        least = min(4, max(map(len, self.words)))  # articles and prepositions tell nothing of the picture
        return max((i for i, word in enumerate(self.words) if len(word) >= least), key=lambda i: peaks[i])

    def brightest(self, head: int | None = None) -> float:
        """The weight at the bright end of the scale: the largest of all words, but four even shares at least.

        So a head that looks everywhere alike stays dim instead of covering the picture.
        """
        maps = self.maps(head)
        return max(float(maps.max()) if maps.numel() else 0.0, SHARES / (self.grid[0] * self.grid[1]))

    def maps(self, head: int | None = None) -> Float[Tensor, "T rows columns"]:
        """Where each word looked: one head, or the mean of all."""
        n_heads = self.weights.size(1)
        if head is not None and not 0 <= head < n_heads:
            raise ValueError(
                f"head must be between 0 and {n_heads - 1}, the heads that looked, got {head}; "
                "leave it out for the mean of all"
            )
        seen = self.weights.detach().float().cpu()
        picked = seen.mean(1) if head is None else seen[:, head]
        return picked.unflatten(-1, self.grid)
