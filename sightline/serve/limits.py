"""What a client may ask for, in one place."""

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The bounds of a server.

    Attributes:
        upload: Bytes of an upload, all of it.
        question: Bytes of a question to a result.
        pixels: Of an image; it is refused before it is decoded.
        text: Characters of a text.
        tokens: Of a text that a run reads: every head keeps a weight for each pair of them.
        waiting: Inputs that are read in, wait or run at one time.
        questions: The same for questions to results, which go first.
        kept: Results that can be asked; the one asked longest ago goes first.
        kept_bytes: What they may hold together; the last one stays, however large.
        seconds: For a body to arrive.
        connections: Open at one time.
    """

    upload: int = 8 << 20
    question: int = 1 << 16
    pixels: int = 24_000_000
    text: int = 20_000
    tokens: int = 2048
    waiting: int = 8
    questions: int = 64
    kept: int = 32
    kept_bytes: int = 256 << 20
    seconds: float = 20.0
    connections: int = 256
