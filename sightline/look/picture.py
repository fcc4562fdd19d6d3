"""A small picture of a matrix as a PNG file, without a drawing library: what a notebook shows of a sight."""

import base64
import struct
import zlib

import torch
from torch import Tensor

from sightline.look.palette import scale, weight
from sightline.shapes import Float

__all__ = ["as_data_uri", "to_png"]

_COLOURS = scale(weight, 17)
_LEAST = 192  # pixels of the longer side, at least


def to_png(matrix: Float[Tensor, "rows columns"]) -> bytes:
    r"""Dark where values are large; each value a square of pixels.

    Example:
        >>> to_png(torch.eye(3))[:8]
        b'\x89PNG\r\n\x1a\n'
    """
    values = matrix.detach().float().cpu().clamp(min=0.0)
    largest = float(values.max()) if values.numel() else 0.0
    level = values / largest if largest > 0 else values
    anchors = torch.tensor(_COLOURS, dtype=torch.float32)
    place = level * (len(_COLOURS) - 1)
    low = place.floor().long().clamp(max=len(_COLOURS) - 2)
    share = (place - low).unsqueeze(-1)
    colours = (anchors[low] * (1 - share) + anchors[low + 1] * share).round().to(torch.uint8)
    zoom = max(1, -(-_LEAST // max(matrix.shape)))
    colours = colours.repeat_interleave(zoom, 0).repeat_interleave(zoom, 1)
    height, width = colours.shape[:2]
    lines = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in colours)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, parts))


def as_data_uri(png: bytes) -> str:
    """What an image in a page takes as its source."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _chunk(part: tuple[bytes, bytes]) -> bytes:
    kind, data = part
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
