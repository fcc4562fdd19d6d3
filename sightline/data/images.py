"""Reading pictures: whatever the file is, an RGB tensor comes out, or a sentence that says why not.

Greyscale, 16-bit, palette, CMYK and transparent pictures become RGB, a camera's rotation is undone, and a
file that is broken, or far too large to be a picture for a model, is refused before it costs memory.
"""

import codecs
import hashlib
import io
import math
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.data.files import atomic_write
from sightline.shapes import Float, Shaped
from sightline.untrusted import check_regular

__all__ = [
    "IMAGE_SUFFIXES",
    "MOST_PIXELS",
    "BrokenImage",
    "digest",
    "normalise",
    "open_image",
    "read_image",
    "resize_crop",
    "sample_path",
    "save_sample",
]

if TYPE_CHECKING:
    from PIL import Image

IMAGE_SUFFIXES = frozenset(
    (
        *(".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".jp2"),
        *(".avif", ".heic", ".heif"),  # the last two can't be read, and are named
    )
)
MOST_PIXELS = 1 << 26  # 64 million, a little more than the largest cameras give; 192 MB once decoded

# Only what decodes inside the library: no Postscript, no fonts, no formats that are programs.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000", "AVIF")


class BrokenImage(ValueError):  # noqa: N818  the name says what it is
    """A file that should be a picture and can't be read as one; the sentence names it and says why."""


def read_image(
    source: Path | BinaryIO | io.IOBase,
    *,
    size: int | None = None,
    name: str | None = None,
    formats: Sequence[str] = _FORMATS,
    most_pixels: int = MOST_PIXELS,
) -> Shaped[Tensor, "3 h w"]:
    """Read a picture as bytes of red, green and blue.

    Args:
        source: A file's path, or an open file.
        size: Make it a square of so many pixels by :func:`resize_crop`; None leaves it as it is.
        name: What to call it in an error; the path, if there is one.
        formats: The only ones to try, by the library's names.
        most_pixels: A picture with more is refused before it is decoded.

    Returns:
        A uint8 tensor ``(3, h, w)``. Transparent parts are white, the first frame stands for an animation.

    Raises:
        BrokenImage: If it is no picture, is damaged, or has more than ``most_pixels`` pixels.
        FileNotFoundError: If there is no such file.

    Example:
        >>> import io
        >>> read_image(io.BytesIO(b"P5 2 1 255 " + bytes([0, 200])))[:, 0]
        tensor([[  0, 200],
                [  0, 200],
                [  0, 200]], dtype=torch.uint8)
    """
    pil = _pillow()
    name = name or (str(source) if isinstance(source, Path) else str(getattr(source, "name", "given")))
    if isinstance(source, Path):
        if not source.exists():
            raise FileNotFoundError(f"there is no image {str(source)!r}")
        if not source.is_dir():  # that has a sentence of its own
            check_regular(source)
    try:
        with pil.open(source, formats=[x for x in formats if x in pil.OPEN]) as picture:
            width, height = picture.size
            if width * height <= most_pixels:
                if size is not None:  # a JPEG can be decoded at a half, a quarter or an eighth of its size
                    picture.draft(None, (2 * size, 2 * size))
                with _DECODING.share(math.prod(picture.size)):
                    return _decoded(picture, size)
    except (pil.DecompressionBombError, pil.DecompressionBombWarning) as bomb:
        count = re.search(r"\d+", str(bomb))  # the library refuses by itself what is far too large
        raise BrokenImage(_too_large(name, count[0] if count else "more", most_pixels)) from None
    except pil.UnidentifiedImageError:
        raise BrokenImage(f"{name!r} is not an image that can be read; {_looks_like(source)}") from None
    except Exception as problem:  # a damaged file makes a decoder raise anything
        raise BrokenImage(f"the image {name!r} can't be read: {_reason(problem)}") from problem
    raise BrokenImage(_too_large(name, str(width * height), most_pixels))


def _decoded(picture: "Image.Image", size: int | None) -> Shaped[Tensor, "3 h w"]:
    image = torch.from_numpy(np.array(_rgb(_upright(picture)))).permute(2, 0, 1).contiguous()
    return image if size is None else resize_crop(image, size)


class _PixelBudget:
    """Lets threads decode at once as many pixels as one image may have: memory does not grow with threads."""

    def __init__(self, most: int) -> None:
        self._left, self._change = most, threading.Condition()

    @contextmanager
    def share(self, count: int) -> Iterator[None]:
        """Wait for so many pixels, and keep them in this block."""
        with self._change:
            self._change.wait_for(lambda: count <= self._left)
            self._left -= count
        try:
            yield
        finally:
            with self._change:
                self._left += count
                self._change.notify_all()


_DECODING = _PixelBudget(MOST_PIXELS)


def resize_crop(image: Shaped[Tensor, "3 h w"], size: int) -> Shaped[Tensor, "3 size size"]:
    """Scale the shorter side to ``size`` and cut the middle square out.

    Example:
        >>> resize_crop(torch.zeros(3, 40, 60, dtype=torch.uint8), 20).shape
        torch.Size([3, 20, 20])
    """
    if size < 1:
        raise ValueError(f"the size of an image must be at least 1 pixel, got {size}")
    height, width = image.shape[1:]
    shorter = min(height, width)
    top, left = (height - shorter) // 2, (width - shorter) // 2
    square = image[:, top : top + shorter, left : left + shorter]
    if shorter == size:
        return square.contiguous()
    scaled = F.interpolate(square[None].float(), size=(size, size), mode="bicubic", antialias=True)
    return scaled[0].round_().clamp_(0, 255).to(image.dtype)  # bicubic overshoots at edges


def normalise(
    images: Shaped[Tensor, "*B 3 h w"],
    *,
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5),
    std: tuple[float, float, float] = (0.5, 0.5, 0.5),
) -> Float[Tensor, "*B 3 h w"]:
    """Bytes 0..255 to floats, ``(x / 255 - mean) / std`` for each colour; by default -1 to 1.

    Example:
        >>> normalise(torch.tensor([0, 255], dtype=torch.uint8).expand(3, 1, 2))[0]
        tensor([[-1.,  1.]])
    """
    if images.dtype != torch.uint8:
        raise TypeError(f"images must be bytes, torch.uint8, to be normalised, got {images.dtype}")
    shift = torch.tensor(mean, device=images.device)[:, None, None]
    scale = torch.tensor(std, device=images.device)[:, None, None]
    return (images.float() / 255 - shift) / scale


def digest(content: bytes | Tensor) -> str:
    """A name for a content, the same for equal bytes or equal pixels: what tells a duplicate.

    Example:
        >>> digest(b"pixels") == digest(b"pixels") != digest(b"others")
        True
    """
    if isinstance(content, Tensor):
        shape = str(tuple(content.shape)).encode()
        content = shape + content.contiguous().cpu().numpy().tobytes()
    return hashlib.sha256(content).hexdigest()


def _upright(picture: "Image.Image") -> "Image.Image":
    """Turn the picture the way the camera was held."""
    from PIL import ImageOps  # noqa: PLC0415

    try:
        turn = picture.getexif().get(0x0112, 1)
    except Exception:  # noqa: BLE001  notes that can't be read are no reason to lose the picture
        return picture
    return ImageOps.exif_transpose(picture) if turn in range(2, 9) else picture


def _rgb(picture: "Image.Image") -> "Image.Image":
    """Red, green and blue, whatever the mode; what is transparent lies on white."""
    pil = _pillow()
    if picture.mode.startswith("I"):  # 16 bits of grey; the library would cut them off at 255
        grey = np.asarray(picture, dtype=np.int64)
        return pil.fromarray((grey.clip(0, 65535) // 257).astype(np.uint8)).convert("RGB")
    if picture.mode == "F":
        raise ValueError("it holds floats, not whole numbers; save it as 8-bit PNG")
    if picture.has_transparency_data:
        over = picture.convert("RGBA")
        white = pil.new("RGBA", over.size, "white")
        return pil.alpha_composite(white, over).convert("RGB")
    return picture.convert("RGB")


def _looks_like(source: Path | BinaryIO | io.IOBase) -> str:
    """What an unreadable file seems to be, for the sentence."""
    if isinstance(source, Path):
        if source.is_dir():
            return "it is a folder"
        with source.open("rb") as file:
            head = file.read(512)
    else:
        source.seek(0)
        head = source.read(512)
    if not head:
        return "it is empty"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the last letter may be cut in two
    except UnicodeDecodeError:
        return "save it as JPEG, PNG or WebP"
    return "save it as JPEG, PNG or WebP" if b"\0" in head else "it is text"


def _too_large(name: str, count: str, most: int) -> str:
    return f"an image may have {most} pixels, {name!r} has {count}; make it smaller"


def _reason(problem: Exception) -> str:
    said = getattr(problem, "strerror", None) or str(problem)  # the system's own words without their number
    return " ".join(said.split()) or type(problem).__name__


def _pillow() -> Any:
    try:
        from PIL import Image  # noqa: PLC0415
    except ImportError as missing:
        raise ImportError(
            "images are read with pillow, which is not installed; pip install 'sightline[train]'", name="PIL"
        ) from missing
    Image.init()  # names every format there is; the first call counts
    return Image


def open_image(given: Any, size: int) -> Shaped[Tensor, "C size size"]:
    """An image as a user gives it, a path or its pixels, as a square of ``size``.

    Args:
        given: The path of a file, or bytes of one or three colours, ``(C, h, w)``.
        size: Pixels a side.

    Raises:
        ValueError: If it is neither.
    """
    if isinstance(given, Tensor):
        if given.dtype != torch.uint8 or given.dim() != 3 or given.size(0) not in {1, 3} or not given.numel():
            raise ValueError(
                f"the pixels of an image are uint8 of shape (1 or 3, h, w), got {given.dtype} of shape "
                f"{tuple(given.shape)}"
            )
        return given if given.shape[1:] == (size, size) else resize_crop(given, size)
    if not isinstance(given, str | Path):
        raise ValueError(  # noqa: TRY004 - a sentence for users
            f"an image is given by its path, or by its pixels as a tensor, got {type(given).__name__}"
        )
    if Path(given).is_dir():
        raise ValueError(f"an image is a file, {str(given)!r} is a folder; try {Path(given) / '*'}")
    return read_image(Path(given), size=size)


def sample_path(folder: Path) -> str:
    """Where :func:`save_sample` saves an image beside a run."""
    return str(folder / "sample.png")


def save_sample(image: Shaped[Tensor, "C h w"], folder: Path) -> None:
    """Save an image, grey or coloured bytes, beside a run."""
    from PIL import Image  # noqa: PLC0415

    pixels = image[0] if len(image) == 1 else image.permute(1, 2, 0)
    with atomic_write(Path(sample_path(folder))) as beside:
        Image.fromarray(pixels.contiguous().numpy()).save(beside, format="PNG")
