"""An image for a Hugging Face model, as its own processor cuts it, and names for the patches of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sightline.data.images import read_image
from sightline.shapes import Float, Shaped

__all__ = ["PatchGrid", "is_vision_model", "read_pixels"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PatchGrid:
    """What a model saw of an image.

    Attributes:
        image: The pixels after the processor, uint8.
        rows, columns: Patches down and across.
    """

    image: Shaped[Tensor, "C h w"]
    rows: int
    columns: int

    def __len__(self) -> int:
        """How many patches."""
        return self.rows * self.columns

    def names(self, s: int) -> Sequence[str]:
        """A name for each of S tokens: the class token, registers and such, then patches by row and column.

        Where the tokens are not the patches, as in windows, they are numbered.
        """
        before = s - len(self)
        if before < 0:
            return [str(i) for i in range(s)]
        special = ["[CLS]", *(f"extra {i}" for i in range(1, before))][:before]
        return [*special, *(f"{r},{c}" for r in range(self.rows) for c in range(self.columns))]


def is_vision_model(model: Any) -> bool:
    """Whether a model's main input is an image."""
    return bool(getattr(model, "main_input_name", "") == "pixel_values")


def read_pixels(
    given: Path | Tensor, processor: Any, model: Any
) -> tuple[Float[Tensor, "1 C h w"], PatchGrid]:
    """Read an image as the model takes it.

    Args:
        given: The file, or its pixels, bytes (3, h, w).
        processor: Hugging Face's, which resizes, cuts and normalises.
        model: Says how large its patches are.
    """
    raw = given if isinstance(given, Tensor) else read_image(given)
    pixels: Tensor = processor(images=raw.permute(1, 2, 0).numpy(), return_tensors="pt")["pixel_values"]
    patch = getattr(model.config, "patch_size", None)
    high, wide = (patch, patch) if isinstance(patch, int) else (patch or (1, 1))
    rows, columns = pixels.size(-2) // int(high), pixels.size(-1) // int(wide)
    lowest, highest = pixels.aminmax()
    shown = (pixels[0] - lowest) / (highest - lowest).clamp(min=1e-6) * 255
    return pixels, PatchGrid(image=shown.round().to(torch.uint8), rows=rows, columns=columns)
