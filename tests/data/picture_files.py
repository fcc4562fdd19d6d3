"""Small picture files for tests, and the ones nobody wants to open."""

import io
import struct
import zlib

import numpy as np
from PIL import Image


def pixels(seed, height=11, width=13):
    """Random bytes of red, green and blue, (height, width, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def encoded(picture, form="PNG", **options):
    """A picture, or an array of one, as the bytes of a file."""
    picture = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


def png(seed, height=11, width=13):
    return encoded(pixels(seed, height, width))


def bomb(side=30_000):
    """A PNG of a few bytes that promises side x side pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 99)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body
