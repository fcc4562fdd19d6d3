"""A figure whose words can be read in every script for which a font is installed."""

import functools
import sys
import unicodedata
import warnings
from typing import Any

from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

__all__ = ["FONT", "FallbackFontFigure"]

FONT = "DejaVu Sans"  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic; no Chinese, Hindi or Thai
_BOXES = "Last Resort"  # a font that has a box for every letter there is
_REGULAR = 400
_NAMED = 8  # letters that no font has and that are told
_told: set[str] = set()


class FallbackFontFigure(Figure):
    """A figure that takes the letters its font lacks from other fonts, whenever it is drawn.

    Letters that no font has are boxes, and one sentence on standard error says which they are.
    """

    def draw(self, renderer: Any) -> None:
        """Draw; matplotlib calls this, whatever it saves to or shows."""
        texts: list[Any] = self.findobj(Text)
        strange = _lacking(findfont(FONT), frozenset("".join(text.get_text() for text in texts)))
        families, missing = _families(strange) if strange else ((), "")
        for text in texts if families else ():
            text.set_fontfamily(list(dict.fromkeys([*text.get_fontfamily(), *families])))
        if not missing:
            super().draw(renderer)
            return
        _tell(missing)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from", UserWarning)
            super().draw(renderer)


@functools.cache
def _families(letters: frozenset[str]) -> tuple[tuple[str, ...], str]:
    """The installed fonts that have some letters, each time the one that has most, and what none has."""
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
    """Those that a font has no sign for; of one that can't be read, or has no outlines, all."""
    shown = frozenset(one for one in letters if unicodedata.category(one) not in {"Cc", "Cf"})
    try:
        font = FT2Font(path)
    except (OSError, RuntimeError):
        return letters
    return frozenset(one for one in shown if not font.scalable or not font.get_char_index(ord(one)))


def _tell(missing: str) -> None:
    """Say which letters can't be drawn, of each once."""
    missing = "".join(one for one in missing if one not in _told)
    if not missing:
        return
    _told.update(missing)
    named = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
    sys.stderr.write(f"no installed font has {named}: drawn as boxes; install one that has, such as Noto's\n")
