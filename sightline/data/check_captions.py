"""What a set of images with captions holds, and what is wrong with it: every image is opened once.

Nothing that is found is fatal as long as one image is left: a report names what can't be used.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import Any

from sightline.data.batches import prefetch
from sightline.data.captions import CLEANING, CaptionedImage, CaptionSet, clean
from sightline.data.check_report import Cell, DataReport, OnProgress
from sightline.data.dataset import Problem, in_order
from sightline.data.images import BrokenImage, digest

__all__ = ["check_captions", "find_duplicates"]

_OFTEN = 5  # a word seen so often in train can be learned; what vocabularies of captions usually keep
_COLUMNS: MappingProxyType[str, Cell] = MappingProxyType(
    {
        "images": lambda x: f"{x['images']:,}",
        "captions": lambda x: f"{x['captions']:,}",
        "distinct words": lambda x: f"{x['words']:,}",
        "not in train": lambda x: f"{x['unknown']:.1%}",
        "longest": lambda x: f"{x['longest']:,}",
    }
)


@dataclass(frozen=True, slots=True)
class _OpenedImage:
    """What is kept of an image that was opened: not the image."""

    record: CaptionedImage
    key: str = ""
    side: int = 0
    broken: str | None = None


def check_captions(
    captions: CaptionSet, *, longest: int = 50, on_progress: OnProgress | None = None, threads: int = 2
) -> DataReport:
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
    duplicates, repeated = find_duplicates((one.key, one.record.split, one.record.name) for one in sound)
    problems = [*captions.problems, *_broken(opened), *_too_long([one.record for one in sound], longest)]
    sides = sorted(one.side for one in sound)
    smallest, middle, largest = sides[0], int(median(sides)), sides[-1]
    known = _words([one.record for one in sound if one.record.split == "train"])
    often = sum(count >= _OFTEN for count in known.values())
    notes = [
        f"{often:,} words are in train at least {_OFTEN} times; words are {CLEANING}",
        f"shorter sides of {smallest} to {largest} pixels, {middle} in the middle"
        if smallest < largest
        else f"shorter sides of {smallest} pixels",
    ]
    if repeated:
        notes.append(f"repeated ({repeated:,}): images that are twice in their split")
    names = in_order(Counter(one.record.split for one in sound))
    return DataReport(
        source=captions.source,
        rule=captions.rule,
        about=f"{captions.layout} captions",
        splits={name: _numbers([x.record for x in sound if x.record.split == name], known) for name in names},
        columns=_COLUMNS,
        problems=(*problems, *duplicates),
        facts={
            "form": captions.layout,
            "often": often,
            "sides": [smallest, middle, largest],
            "repeated": repeated,
            "cleaning": CLEANING,
        },
        notes=tuple(notes),
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


def find_duplicates(images: Iterable[tuple[str, str, str]]) -> tuple[list[Problem], int]:
    """The same pixels in two splits, which makes a score too good; and how many repeat within one.

    Args:
        images: Content, split and name of each.
    """
    first: dict[tuple[str, str], str] = {}  # by content and split, the image's name
    repeated = 0
    for key, split, name in images:
        repeated += (key, split) in first
        first.setdefault((key, split), name)
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


def _numbers(records: Sequence[CaptionedImage], known: Counter[str]) -> dict[str, Any]:
    """One split: images, captions, different words, the share of them that train has not, the longest."""
    words = _words(records)
    total = sum(words.values())
    unknown = sum(count for word, count in words.items() if word not in known)
    lengths = [len(clean(caption).split()) for record in records for caption in record.captions]
    return {
        "images": len(records),
        "captions": len(lengths),
        "words": len(words),
        "unknown": unknown / total,
        "longest": max(lengths),
    }


def _words(records: Sequence[CaptionedImage]) -> Counter[str]:
    captions = [caption for record in records for caption in record.captions]
    return Counter(word for caption in captions for word in clean(caption).split())
