"""``dates``: the embedded set of sentence pairs, dates as people write them, to ISO 8601.

    Donnerstag, 3. Mai 1979     ->  1979-05-03
    3 Μαΐου 1979                ->  1979-05-03
    1979年5月3日                 ->  1979-05-03

The forms come from the locale data of ``babel``. Because we write them piece by piece, we know which letters
are the year, the month and the day: so it can be *measured* whether a model's attention lies on the word that
a digit comes from. The day of a date decides its split, so that no test date is ever seen in training, in
any language.
"""

import datetime as dt
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from sightline.data.dataset import SPLITS
from sightline.data.pair_set import Pair, PairSet
from sightline.shapes import did_you_mean

__all__ = ["DATES", "FIELDS", "SPLITS", "DatePair", "Dates", "dates_set", "is_dates"]

DATES = "dates"
SOURCE, TARGET = "date", "iso"
FIELDS = ("year", "month", "day")
SIZES = MappingProxyType({"train": 20_000, "val": 500, "test": 1000})

_LOCALES = (
    *("cs", "da", "de", "el", "en", "en_GB", "es", "fi", "fr", "hu", "id", "it"),
    *("ja", "ko", "lt", "nb", "nl", "pl", "pt", "ro", "ru", "sv", "tr", "uk"),
)
_LENGTHS: tuple[Literal["full", "long", "medium"], ...] = ("full", "long", "medium")
_SKELETONS = ("yMMMEd", "yMMMd", "yMMMMd")
_SPOKEN = MappingProxyType(
    {
        "de": ("EEEE, 'den' d. MMMM y", "'am' d. MMMM y"),
        "en": ("EEEE, d MMM y", "EEE, d MMMM y"),
        "es": ("'el' d 'de' MMMM 'de' y",),
        "fr": ("'le' d MMMM y", "'le' EEEE d MMMM y"),
        "it": ("'il' d MMMM y",),
    }
)
_FIRST, _LAST = dt.date(1900, 1, 1), dt.date(2099, 12, 31)
_SHARES = 20  # of which one is the test split's and one is val's
_FIELD_OF = MappingProxyType({"y": "year", "M": "month", "L": "month", "d": "day"})

_Piece = tuple[str | None, str]  # (None, letters as they stand) or (field, babel's code for it)


@dataclass(frozen=True, kw_only=True, slots=True)
class DatePair:
    """A date as it is written in a language, its ISO form, and where the parts stand in the text.

    Attributes:
        source: The date as written.
        target: ``YYYY-MM-DD``.
        locale: The language, as ``babel`` names it.
        spans: For each of ``FIELDS`` the letters ``[start, end)`` of the source that say it.
    """

    source: str
    target: str
    locale: str
    spans: dict[str, tuple[int, int]]


class Dates(Sequence[DatePair]):
    """A split of the set: ``n`` dates by seed, nothing stored but the texts.

    Args:
        n: How many pairs.
        seed: Which ones.
        split: ``train``, ``val`` or ``test``; their dates are disjoint whatever the seeds.

    Example:
        >>> one = Dates(3, seed=0, split="test")[1]
        >>> one.target[:4] == one.source[slice(*one.spans["year"])]
        True
    """

    def __init__(self, n: int, *, seed: int = 0, split: str = "train") -> None:
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r} of dates, {did_you_mean(split, SPLITS)}")
        if n < 1:
            raise ValueError(f"a set of dates has at least one, got n={n}")
        forms = _forms()
        draw = random.Random(f"dates/{seed}/{split}")  # noqa: S311 (not a secret)
        self._pairs = [_written(*_drawn(draw, split, forms)) for _ in range(n)]

    def __len__(self) -> int:
        """How many pairs there are."""
        return len(self._pairs)

    def __getitem__(self, index: Any) -> Any:
        """The pair at an index, or those of a slice."""
        return self._pairs[index]


def is_dates(place: Path | str) -> bool:
    """Whether a place that a user names is the embedded set; a folder of that name is ``./dates``."""
    return str(place) == DATES


def dates_set(
    *,
    seed: int = 0,
    sizes: tuple[int, int, int] | None = None,
    source: str | None = None,
    target: str | None = None,
) -> PairSet:
    """All splits as sentence pairs, as :func:`~sightline.data.pairs.read_pairs` gives those of files.

    Args:
        seed: Which dates.
        sizes: Of train, val and test. Default: 20,000, 500 and 1,000.
        source, target: The languages, if they are named: ``date`` and ``iso``.
    """
    for role, name, own in (("source", source, SOURCE), ("target", target, TARGET)):
        if name not in (None, own):
            raise ValueError(
                f"{DATES!r} is translated from {SOURCE!r} to {TARGET!r}, got the {role} {name!r}; leave out "
                f"--{role}, or give other data"
            )
    counts = tuple(SIZES.values()) if sizes is None else sizes
    splits = {name: Dates(n, seed=seed, split=name) for name, n in zip(SPLITS, counts, strict=True)}
    pairs = {name: [Pair(one.source, one.target) for one in split] for name, split in splits.items()}
    return PairSet(
        source=DATES,
        source_language=SOURCE,
        target_language=TARGET,
        parts=pairs,
        layout=DATES,
        rule="by a hash of each day",
    )


def split_of(day: dt.date) -> str:
    """Which split a date belongs to, in all languages.

    Example:
        >>> import datetime as dt
        >>> split_of(dt.date(1979, 5, 3))
        'train'
    """
    share = zlib.crc32(day.isoformat().encode()) % _SHARES
    return {0: "test", 1: "val"}.get(share, "train")


def _drawn(
    draw: random.Random, split: str, forms: dict[str, list[list[_Piece]]]
) -> tuple[dt.date, str, list[_Piece]]:
    """A date of the split, a language, and one of its forms."""
    while True:
        day = dt.date.fromordinal(draw.randint(_FIRST.toordinal(), _LAST.toordinal()))
        if split_of(day) == split:
            break
    locale = draw.choice(_LOCALES)
    return day, locale, draw.choice(forms[locale])


def _written(day: dt.date, locale: str, form: list[_Piece]) -> DatePair:
    from babel.dates import DateTimeFormat  # noqa: PLC0415  babel is an extra

    pieces = DateTimeFormat(day, locale)
    text, spans = "", {}
    for field, letters in form:
        shown = letters if field is None else str(pieces[letters])
        if field in FIELDS:
            spans[field] = (len(text), len(text) + len(shown))
        text += shown
    return DatePair(source=text, target=day.isoformat(), locale=locale, spans=spans)


def _forms() -> dict[str, list[list[_Piece]]]:
    """Every way each language writes a date that names year, month and day beyond doubt."""
    try:
        from babel import Locale  # noqa: PLC0415  babel is an extra
        from babel.dates import get_date_format, tokenize_pattern  # noqa: PLC0415
    except ImportError:
        raise ImportError(
            "the set 'dates' needs babel; pip install 'sightline[train]'", name="babel"
        ) from None
    found = {}
    for name in _LOCALES:
        locale = Locale.parse(name)
        patterns = [get_date_format(length, locale).pattern for length in _LENGTHS]
        patterns += [
            locale.datetime_skeletons[s].pattern for s in _SKELETONS if s in locale.datetime_skeletons
        ]
        patterns += _SPOKEN.get(name, ())
        forms = [_pieces(tokenize_pattern(pattern)) for pattern in dict.fromkeys(patterns)]
        found[name] = [form for form in forms if _is_certain(form)]
    return found


def _pieces(tokens: list[Any]) -> list[_Piece]:
    pieces: list[_Piece] = []
    for kind, value in tokens:
        if kind == "chars":
            pieces.append((None, str(value)))
        else:
            letter, count = value
            pieces.append((_FIELD_OF.get(letter, letter), letter * count))
    return pieces


def _is_certain(form: list[_Piece]) -> bool:
    """Whether a reader can tell day from month: a month's name, or an order that its marks give away.

    3/5/1979 is a day in May or in March; 3.5.1979 and 1979/5/3 are read one way only.
    """
    fields = [field for field, _ in form if field in FIELDS]
    if sorted(fields) != sorted(FIELDS):
        return False
    if any(code in ("yy", "yyy") for _, code in form):
        return False
    named = any(field == "month" and len(code) > 2 for field, code in form)
    between = [letters.strip() for field, letters in form if field is None]
    return named or fields[0] == "year" or "." in between
