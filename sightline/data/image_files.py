"""Where the images of a set come from: files, or a hand that draws them."""

import io
from typing import Protocol, runtime_checkable

from torch import Tensor

from sightline.data.images import BrokenImage, digest, read_image
from sightline.data.sources import Files
from sightline.shapes import Shaped

__all__ = ["ImageFiles", "Images"]


@runtime_checkable
class Images(Protocol):
    """Opens images by their names."""

    def open(self, name: str, *, size: int | None = None) -> Shaped[Tensor, "3 h w"]:
        """The bytes of red, green and blue; a square of ``size`` if one is given."""

    def digest(self, name: str) -> str:
        """A name for the content: two images with the same one are the same."""


class ImageFiles:
    """Images that lie in a folder or a zip, under the names that annotations give them."""

    def __init__(self, files: Files, paths: dict[str, str]) -> None:
        self.files = files
        self.paths = paths

    def open(self, name: str, *, size: int | None = None) -> Shaped[Tensor, "3 h w"]:
        """Read and decode one image."""
        return read_image(io.BytesIO(self._read(name)), size=size, name=name)

    def digest(self, name: str) -> str:
        """The hash of the file's bytes."""
        return digest(self._read(name))

    def _read(self, name: str) -> bytes:
        try:
            return self.files.read(self.paths[name])
        except OSError as problem:
            raise BrokenImage(f"the image {name!r} can't be read: {problem}") from problem
