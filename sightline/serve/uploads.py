"""What comes in: read into memory up to a bound, never onto the disk, decoded in the formats of the web."""

import asyncio
import contextlib
import ctypes
import io
import json
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import Request
from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from torch import Tensor

from sightline.data.images import read_image
from sightline.serve.limits import Limits
from sightline.shapes import Shaped

__all__ = [
    "FORMATS",
    "Refused",
    "decode_image",
    "read_body",
    "read_image_file",
    "read_json",
    "read_text",
]

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")


class Refused(Exception):  # noqa: N818  the name says what was done
    """A request that is not served.

    Attributes:
        status: Of the answer.
        sentence: What the client is told.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class _MemoryParser(MultiPartParser):
    """Keeps every part in memory: a body was bounded before it comes here."""

    spool_max_size = 1 << 40


async def read_body(request: Request, most: int, seconds: float) -> bytes:
    """The body of a request.

    Raises:
        Refused: If it has more bytes than may be, or does not arrive in time.
    """
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or int(declared) > most:
        raise Refused(413, _too_long(most, declared))
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise Refused(413, _too_long(most, "more"))
    except TimeoutError:
        raise Refused(
            408, f"a request must arrive within {seconds:g} seconds, {len(body)} bytes came"
        ) from None
    return bytes(body)


async def read_image_file(request: Request, limits: Limits) -> bytes:
    """The one file of a form, field ``image``; the name that the client gives it is not looked at."""
    body = await read_body(request, limits.upload, limits.seconds)

    async def chunks() -> AsyncGenerator[bytes, None]:
        yield body
        yield b""

    try:
        form = await _MemoryParser(request.headers, chunks(), max_files=1, max_fields=0).parse()
    except KeyError:
        raise Refused(
            400, "an image is sent as a form with one file, this request has no Content-Type"
        ) from None
    except (MultiPartException, FormParserError, ValueError, LookupError) as problem:
        reason = str(getattr(problem, "message", problem)).rstrip(".") or type(problem).__name__
        raise Refused(
            400, f"an image is sent as a form with one file, this one can't be read: {reason}"
        ) from None
    try:
        given = form.get("image")
        if not isinstance(given, UploadFile):
            raise Refused(
                400, f"an image is sent as the file 'image' of a form, got {sorted(form) or 'nothing'}"
            )
        return await given.read()
    finally:
        await form.close()


async def read_json(request: Request, limits: Limits, most: int) -> dict[str, Any]:
    """An object of JSON."""
    body = await read_body(request, most, limits.seconds)
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        raise Refused(400, f"a request must be JSON: {' '.join(str(problem).split())}") from None
    if not isinstance(value, dict):
        raise Refused(400, f"a request must be one JSON object, got {type(value).__name__}")
    return value


async def read_text(request: Request, limits: Limits) -> str:
    """The ``text`` of an object of JSON."""
    value = await read_json(request, limits, min(limits.upload, limits.text * 12 + 1024))  # \ud83d\ude00
    text = value.get("text")
    if not isinstance(text, str):
        raise Refused(400, f"a text is sent as {{'text': '...'}}, got {sorted(value) or 'nothing'}")
    if len(text) > limits.text:
        raise Refused(
            413, f"a text may have {limits.text:,} characters, got {len(text):,}; send a part of it"
        )
    if not text.strip():
        raise Refused(422, "there must be something to read, got an empty text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused(422, "a text must be Unicode, got half of a character") from None
    return text


def decode_image(content: bytes, limits: Limits, size: int | None) -> Shaped[Tensor, "3 h w"]:
    """The pixels of an upload.

    Args:
        content: The file.
        limits: Says how many pixels it may have.
        size: Make it a square of so many pixels; None leaves it as it is.

    Raises:
        ValueError: In a sentence, if it is no image, is damaged, or has too many pixels.
    """
    try:
        return read_image(
            io.BytesIO(content), size=size, name="upload", formats=FORMATS, most_pixels=limits.pixels
        )
    finally:
        _release_memory()


def _release_memory() -> None:
    """Give back what a decoder left free: for a thread other than the first, the C library would keep it."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def _too_long(most: int, length: str) -> str:
    return f"a request may have {most:,} bytes, got {length}; send less"


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
