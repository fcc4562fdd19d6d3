"""Images as files: those that users name, and one to try a model on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from sightline.data.files import atomic_write
from sightline.shapes import Shaped

__all__ = ["check_image_paths", "save_sample"]


def check_image_paths(inputs: Sequence[Any]) -> None:
    """Refuse what is no path of a file.

    Raises:
        ValueError: For the first one that is not.
    """
    for path in inputs:
        if not isinstance(path, str | Path):
            raise ValueError(f"an image is given by its path, got {type(path).__name__}")  # noqa: TRY004
        if Path(path).is_dir():
            raise ValueError(f"an image is a file, {str(path)!r} is a folder; try {Path(path) / '*'}")


def save_sample(image: Shaped[Tensor, "C h w"], folder: Path) -> str:
    """Save an image, grey or coloured bytes, beside a run, and give its path."""
    from PIL import Image  # noqa: PLC0415

    pixels = image[0] if len(image) == 1 else image.permute(1, 2, 0)
    path = folder / "sample.png"
    with atomic_write(path) as beside:
        Image.fromarray(pixels.contiguous().numpy()).save(beside, format="PNG")
    return str(path)
