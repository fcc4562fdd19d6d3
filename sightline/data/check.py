"""What a set of images with captions holds, and what is wrong with it: every image is opened once.

Nothing that is found is fatal as long as one image is left: a :class:`Report` names what can't be used.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from sightline.data.batches import prefetch
from sightline.data.captions import CLEANING, CaptionedImage, CaptionSet, clean
from sightline.data.dataset import Problem
from sightline.data.images import BrokenImage, digest

__all__ = ["Report", "SplitReport", "check"]

OnProgress = Callable[[int], None]
_OFTEN = 5  # a word seen so often in train can be learned; what vocabularies of captions usually keep


@dataclass(frozen=True, slots=True)
class SplitReport:
    """What one split holds.

    Attributes:
        images: How many can be used.
        captions: How many they have together.
        words: How many different words, cleaned.
        unknown: The share of this split's words, each as often as it stands there, that train does not have.
        longest: How many words the longest caption has.
    """

    images: int
    captions: int
    words: int
    unknown: float
    longest: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a set holds, and what is wrong with it.

    Attributes:
        source: The folder or zip.
        form: The layout that was found.
        rule: How the splits came about.
        splits: What each holds.
        often: How many words of train are seen at least five times there.
        sides: The shorter sides of the images in pixels: smallest, middle, largest.
        repeated: Images that are there more than once within a split.
        problems: What can't be used or should not be so, by kind.
        cleaning: How captions were turned into words to be counted.
    """

    source: str
    form: str
    rule: str
    splits: dict[str, SplitReport]
    often: int
    sides: tuple[int, int, int]
    repeated: int
    problems: tuple[Problem, ...]
    cleaning: str = CLEANING

    def by_kind(self) -> dict[str, list[Problem]]:
        """The problems, gathered."""
        kinds: dict[str, list[Problem]] = {}
        for problem in self.problems:
            kinds.setdefault(problem.kind, []).append(problem)
        return kinds

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        counts = {kind: len(problems) for kind, problems in self.by_kind().items()}
        return {**asdict(self), "sides": list(self.sides), "counts": counts}


@dataclass(frozen=True, slots=True)
class _OpenedImage:
    """What is kept of an image that was opened: not the image."""

    record: CaptionedImage
    key: str = ""
    side: int = 0
    broken: str | None = None


def check(
    captions: CaptionSet, *, longest: int = 50, on_progress: OnProgress | None = None, threads: int = 2
) -> Report:
    """Open every image and count every word.

    Args:
        captions: The set, as :func:`sightline.data.captions.read_captions` gives it.
        longest: A caption of more words is reported.
        on_progress: Called with the number of images opened so far, for a progress bar.
        threads: How many images are decoded at once.

    Raises:
        ValueError: If not one image can be read.
    """
    if longest < 1:
        raise ValueError(f"the longest caption must have at least 1 word, got {longest}")
    opened = list(_opened(captions, on_progress, threads))
    sound = [one for one in opened if one.broken is None]
    if not sound:
        raise ValueError(
            f"not one of the {len(opened)} images of {captions.source!r} can be read; the first: "
            f"{opened[0].broken if opened else 'there is none'}"
        )
    problems = [*captions.problems, *_broken(opened)]
    problems += _too_long([one.record for one in sound], longest)
    across, repeated = _duplicates(sound)
    sides = sorted(one.side for one in sound)
    known = _words([one.record for one in sound if one.record.split == "train"])
    return Report(
        captions.source,
        captions.layout,
        captions.rule,
        {name: _split([x.record for x in sound if x.record.split == name], known) for name in _names(sound)},
        sum(count >= _OFTEN for count in known.values()),
        (sides[0], int(median(sides)), sides[-1]),
        repeated,
        (*problems, *across),
    )


def _opened(captions: CaptionSet, on_progress: OnProgress | None, threads: int) -> Iterator[_OpenedImage]:
    def look(record: CaptionedImage) -> _OpenedImage:
        try:
            image = captions.open(record)
        except BrokenImage as problem:
            return _OpenedImage(record, broken=str(problem))
        return _OpenedImage(record, digest(image), min(image.shape[1:]))

    with prefetch(look, captions.records, threads=threads, depth=2 * threads) as results:
        for count, one in enumerate(results, 1):
            if on_progress is not None:
                on_progress(count)
            yield one


def _broken(opened: Sequence[_OpenedImage]) -> list[Problem]:
    named = {one.record.name: one.broken for one in opened if one.broken is not None}
    return [Problem("broken", name, sentence) for name, sentence in named.items()]


def _too_long(records: Sequence[CaptionedImage], longest: int) -> list[Problem]:
    problems = []
    for record in records:
        for caption in record.captions:
            count = len(clean(caption).split())
            if count > longest:
                sentence = f"a caption of {record.name!r} has {count} words, more than {longest}"
                problems.append(Problem("too long", record.name, f"{sentence}: {caption[:50]!r}..."))
    return problems


def _duplicates(sound: Sequence[_OpenedImage]) -> tuple[list[Problem], int]:
    """The same pixels in two splits, which makes a score too good; and how many repeat within one."""
    first: dict[tuple[str, str], str] = {}  # by content and split, the image's name
    repeated = 0
    for one in sound:
        place = (one.key, one.record.split)
        repeated += place in first
        first.setdefault(place, one.record.name)
    where: dict[str, dict[str, str]] = {}  # by content, the name in each split
    for (key, split), name in first.items():
        where.setdefault(key, {})[split] = name
    problems = []
    for places in where.values():
        if len(places) > 1:
            listed = " and ".join(f"{name!r} in {split}" for split, name in places.items())
            sentence = f"the same image is {listed}; take it out of one"
            problems.append(Problem("duplicate", next(iter(places.values())), sentence))
    return problems, repeated


def _split(records: Sequence[CaptionedImage], known: Counter[str]) -> SplitReport:
    words = _words(records)
    total = sum(words.values())
    unknown = sum(count for word, count in words.items() if word not in known)
    lengths = [len(clean(caption).split()) for record in records for caption in record.captions]
    return SplitReport(len(records), len(lengths), len(words), unknown / total, max(lengths))


def _words(records: Sequence[CaptionedImage]) -> Counter[str]:
    captions = [caption for record in records for caption in record.captions]
    return Counter(word for caption in captions for word in clean(caption).split())


def _names(sound: Sequence[_OpenedImage]) -> list[str]:
    names = {one.record.split for one in sound}
    first = [name for name in ("train", "val", "test") if name in names]
    return [*first, *sorted(names - set(first))]
