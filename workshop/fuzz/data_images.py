"""Hostile images: bombs, damage, wrong labels, every mode; each maker gives the bytes of one."""

import struct
import zlib

from PIL import Image

from tests.tiny import HERE
from workshop.fuzz.pictures import captioned, encoded, packed, picture


def png_bomb(chance):
    """A PNG of a few kilobytes with millions of pixels: around the limit, and far beyond."""
    side = chance.choice([8192, 8193, 16384, 60000, 2**31 - 1])
    row = b"\0" + bytes(min(side, 1 << 16) * 3)
    return _png(side, side, zlib.compress(row * 512, 1))


def truncated(chance):
    data = encoded(picture(chance), chance.choice(["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"]))
    return data[: chance.randrange(len(data))]


def flipped(chance):
    data = bytearray(encoded(picture(chance), chance.choice(["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"])))
    for _ in range(chance.randrange(1, 9)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def mislabelled(chance):
    heads = (
        b"%PDF-1.7",
        b"#!/bin/sh\ntouch owned\n",
        b"%!PS-Adobe",
        b"<svg onload=alert(1)>",
        b"MZ",
        b"PK\3\4",
    )
    return chance.choice(heads) + bytes(chance.randrange(200))


def modes(chance):
    mode, kind = chance.choice(
        [
            ("CMYK", "JPEG"),
            ("L", "JPEG"),
            ("1", "PNG"),
            ("P", "PNG"),
            ("LA", "PNG"),
            ("RGBA", "PNG"),
            ("I;16", "PNG"),
            ("I", "TIFF"),
            ("F", "TIFF"),
            ("CMYK", "TIFF"),
            ("LAB", "TIFF"),
            ("YCbCr", "JPEG"),
        ]
    )
    return encoded(picture(chance, mode), kind)


def exif(chance):
    image = picture(chance)
    notes = Image.Exif()
    notes[0x0112] = chance.choice([0, 1, 3, 5, 6, 8, 9, 255, 65535])
    data = bytearray(encoded(image, "JPEG", exif=notes.tobytes()))
    if chance.random() < 0.5:
        data[chance.randrange(20, min(80, len(data)))] = chance.randrange(256)
    return bytes(data)


def animated(chance):
    frames = [picture(chance, size=(9, 7)) for _ in range(chance.choice([2, 3, 300]))]
    return encoded(frames[0], chance.choice(["GIF", "WEBP"]), save_all=True, append_images=frames[1:])


def extreme(chance):
    return encoded(picture(chance, size=chance.choice([(1, 1), (1, 5000), (60000, 1), (3, 20000)])))


def ancillary_bomb(chance):
    """A text chunk of a PNG that unpacks to a hundred megabytes."""
    chunk = b"zTXt" + b"k\0\0" + zlib.compress(bytes(100 << 20), 9)
    head = encoded(picture(chance, size=(9, 7)))
    return head[:33] + _chunk(chunk) + head[33:]


def icc_profile(chance):
    return encoded(picture(chance), "PNG", icc_profile=bytes(chance.randrange(256) for _ in range(300)))


def _chunk(body):
    return struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))


def _png(width, height, body):
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(head) + _chunk(b"IDAT" + body) + _chunk(b"IEND")


def _image_case(make):
    def case(chance, folder):
        way = chance.randrange(4)
        name = "hostile.png"
        if way == 0:
            (folder / name).write_bytes(make(chance))
            return ["caption", str(HERE / "caption/finished"), str(folder / name), "--json"]
        if way == 1:
            (folder / name).write_bytes(make(chance))
            return ["classify", str(HERE / "classify/finished"), str(folder / name), "--json"]
        files = captioned(chance, 5)
        files["3.png"] = make(chance)
        return ["data", "check", str(packed(chance, folder, files)), "--json"]

    case.__name__ = make.__name__
    return case


IMAGE_MAKERS = [
    _image_case(make)
    for make in (
        *(png_bomb, truncated, flipped, mislabelled, modes, exif, animated, extreme),
        *(ancillary_bomb, icc_profile),
    )
]
