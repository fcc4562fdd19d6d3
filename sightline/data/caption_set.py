"""Images with captions in splits: what a captioner learns from."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from sightline.data.dataset import (
    ALL,
    STATED,
    Problem,
    digest_of,
    find_split,
    in_order,
    missing_split,
)
from sightline.data.image_files import Images
from sightline.shapes import Shaped

__all__ = ["CLEANING", "DRAWN_SIZE", "CaptionSet", "CaptionedImage", "clean"]

CLEANING = "lower-cased, punctuation stripped (sightline.data.captions.clean)"  # for signatures of scores
DRAWN_SIZE = (
    "as large as is asked for: a training draws --n-train, --n-val and --n-test"  # of a set that is drawn
)


def clean(text: str) -> str:
    """A caption as models see it: lower-cased words with one space between them, no punctuation.

    Letters, marks and digits of any script stay; an apostrophe inside a word stays, a hyphen parts two words.

    Example:
        >>> clean("A man's T-shirt,  No. 7!")
        "a man's t shirt no 7"
    """
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower()).replace("’", "'")
    if text.isascii():
        kept = re.sub(r"[^a-z0-9']", " ", text)
    else:
        kept = "".join(c if c == "'" or unicodedata.category(c)[0] in "LMN" else " " for c in text)
    return " ".join(word for part in kept.split() if (word := part.strip("'")))


@dataclass(frozen=True, slots=True)
class CaptionedImage:
    """One image and what was said about it.

    Attributes:
        name: What its annotation calls it.
        captions: One or more, as they were written.
        split: ``"train"``, ``"val"``, ``"test"`` or a name of the data's own.
    """

    name: str
    captions: tuple[str, ...]
    split: str


@dataclass(frozen=True, eq=False)
class CaptionSet:
    """Images with captions, in splits: a :class:`~sightline.data.dataset.Dataset`.

    Attributes:
        records: What can be used: images that are there, with captions.
        images: Opens them.
        problems: What could not be used, and why.
        source: The folder, the zip, or the embedded set's name.
        layout: Which of the layouts it has.
        rule: How the splits came about.
    """

    records: Sequence[CaptionedImage]
    images: Images
    problems: Sequence[Problem] = ()
    source: str = ""
    layout: str = ""
    rule: str = STATED

    def splits(self) -> dict[str, int]:
        """How many images each split has: train, val and test first."""
        return in_order(Counter(record.split for record in self.records))

    def split(self, name: str) -> Sequence[CaptionedImage]:
        """The images of one split, or ``all``; ValueError, with those there are, if it has none."""
        counts = self.splits()
        found = find_split(name, counts)
        if found is None and name != ALL:
            raise missing_split(name, counts, self.source, remedy=self._remedy(name))
        return [record for record in self.records if found is None or record.split == found]

    def digest(self) -> str:
        """Names the images of train and val and their captions, by what the annotations call them."""
        records = [*self.split("train"), *self.split("val")]
        return digest_of((record.split, record.name, *record.captions) for record in records)

    def lines(self, split: str) -> Iterable[str]:
        """Every caption of a split, cleaned: what a tokenizer learns from."""
        return [clean(caption) for record in self.split(split) for caption in record.captions]

    def open(self, record: CaptionedImage, *, size: int | None = None) -> Shaped[Tensor, "3 h w"]:
        """The image as uint8 ``(3, h, w)``, a square of ``size`` if one is given.

        Raises:
            BrokenImage: If it can't be read; the sentence names it.
        """
        return self.images.open(record.name, size=size)

    def image_digest(self, record: CaptionedImage) -> str:
        """A name for the image's content, to know it again: for caches, and to find duplicates."""
        return self.images.digest(record.name)

    def __len__(self) -> int:
        """How many images can be used."""
        return len(self.records)

    def _remedy(self, name: str) -> str:
        """How a set gets a split that it lacks."""
        if self.rule == STATED:
            return f"give some images the split {name!r}, or none a split, and they are drawn"
        if self.rule == DRAWN_SIZE:
            return f"ask for some with --n-{name}"
        return "add some: it is drawn where there are at least three images"
