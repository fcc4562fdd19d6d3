"""A figure that can write every script for which a font is installed."""

import functools
import logging
import unicodedata
import warnings
from typing import Any

from matplotlib.font_manager import findfont, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

from sightline.show.display import DisplayFigure

__all__ = ["FONT", "FallbackFontFigure"]

FONT = "DejaVu Sans"  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic; no Chinese, Hindi or Thai
_BOXES = "Last Resort"  # a font with a box for every letter
_REGULAR = 400
_NAMED = 8  # letters that a warning names
_logger = logging.getLogger(__name__)
_reported: set[str] = set()


class FallbackFontFigure(DisplayFigure):
    """A figure that takes letters missing in its font from other installed fonts.

    A letter that no font has is drawn as a box, and a warning is logged once.
    """

    def draw(self, renderer: Any) -> None:
        """Draw; matplotlib calls this whenever it saves or shows the figure."""
        texts: list[Any] = self.findobj(Text)
        strange = _lacking(findfont(FONT), frozenset("".join(text.get_text() for text in texts)))
        families, missing = _families(strange) if strange else ((), "")
        for text in texts if families else ():
            text.set_fontfamily(list(dict.fromkeys([*text.get_fontfamily(), *families])))
        if not missing:
            super().draw(renderer)
            return
        _report(missing)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from", UserWarning)
            super().draw(renderer)


@functools.cache
def _families(letters: frozenset[str]) -> tuple[tuple[str, ...], str]:
    """Installed fonts that have the letters, those with most of them first, and the letters that none has."""
    has: dict[str, frozenset[str]] = {}
    for font in sorted(fontManager.ttflist, key=lambda font: (font.name, abs(int(font.weight) - _REGULAR))):
        if font.style == "normal" and font.name not in has and not font.name.startswith(_BOXES):
            has[font.name] = letters - _lacking(font.fname, letters)
    families = []
    while has:
        best = max(has, key=lambda name: len(has[name] & letters))
        if not has[best] & letters:
            break
        families.append(best)
        letters -= has[best]
    return tuple(families), "".join(sorted(letters))


def _lacking(path: str, letters: frozenset[str]) -> frozenset[str]:
    """The letters that a font has no glyph for; all of them if the font can't be read."""
    shown = frozenset(one for one in letters if unicodedata.category(one) not in {"Cc", "Cf"})
    try:
        font = FT2Font(path)
    except (OSError, RuntimeError):
        return letters
    return frozenset(one for one in shown if not font.scalable or not font.get_char_index(ord(one)))


def _report(missing: str) -> None:
    """Log which letters can't be drawn, each once."""
    missing = "".join(one for one in missing if one not in _reported)
    if not missing:
        return
    _reported.update(missing)
    named = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
    _logger.warning("no installed font has %s: drawn as boxes; install one that has, such as Noto's", named)
