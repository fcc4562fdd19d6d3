"""Inputs that are files, as users name them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["check_image_paths"]


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
