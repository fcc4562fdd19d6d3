"""What scoring gives, whatever was scored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Scores"]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of a set of predictions.

    Attributes:
        total: Of all together, by name.
        each: Of each prediction alone, in order, by name.
        signatures: How each score was computed, in a line.
        about: What else a reader should know, as the end of a sentence: ", beam 5".
        tables: Further files by name, as text.
        figures: Further figures by title, each drawn when it is called, with a caption.
    """

    total: Mapping[str, float]
    each: Mapping[str, Sequence[float]] = field(default_factory=dict)
    signatures: Mapping[str, str] = field(default_factory=dict)
    about: str = ""
    tables: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, tuple[Callable[[], Any], str]] = field(default_factory=dict)
