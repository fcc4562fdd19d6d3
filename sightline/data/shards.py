"""A set in shards: which example lies where, in which split, and how examples are read as they are needed.

What is kept in memory is the index, 30 bytes an example, and the numbers of each split, 8 bytes an example:
40 MB for a million examples. Texts are read when the set is opened, images when they are asked for.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.counter_rng import Ints, hashed_integers
from sightline.data.dataset import STATED, Dataset, Problem, digest_of, in_order
from sightline.data.images import BrokenImage
from sightline.data.shard_files import TAR, split_of_shard
from sightline.data.shard_readers import ParquetShard, ShardReader, TarShard
from sightline.data.shard_rows import CAPTION, IMAGE, LABEL, PAIR
from sightline.messages import logger
from sightline.untrusted import check_memory, format_bytes, read_json

__all__ = ["CLASSES", "Shards", "deal", "warn_of_problems"]

CLASSES = "classes.json"  # beside tar shards: the names that the numbers in .cls count
_LAYOUTS: Mapping[type[Any], str] = {TarShard: "tar shards", ParquetShard: "parquet shards"}
_ROLE_NAMES = {IMAGE: "an image", CAPTION: "a caption", LABEL: "a class", PAIR: "a pair of texts"}
_NAMED = 5  # problems that a training is told
_MANY = 50  # shards whose reading is told
_AS_ROWS = 4  # bytes of memory for a byte of text, once it is Python's
_MOST_CLASSES = 1 << 24  # bytes of the file of their names


class Shards:
    """The shards of one set.

    Args:
        paths: The files, in order.
        source: What the user has called them.
        roles: What an example must have; those that lack something are left out, and told.

    Raises:
        ValueError: If no example has what is needed.
    """

    def __init__(self, paths: Sequence[Path], source: str, roles: int) -> None:
        self.source = source
        make = TarShard if paths[0].suffix.lower() == TAR else ParquetShard
        self.layout = _LAYOUTS[make]
        self._shards: list[ShardReader] = []
        for number, path in enumerate(paths, 1):
            self._shards.append(make(path))
            if number % _MANY == 0:
                logger.info("read the index of %d of %d shards of %r", number, len(paths), source)
        above = os.path.commonpath([path.absolute().parent for path in paths])
        self.names = [path.absolute().relative_to(above).as_posix() for path in paths]
        self._number = {name: i for i, name in enumerate(self.names)}
        self._starts = np.cumsum([0, *(len(shard.index.rows) for shard in self._shards)])
        self.problems = [Problem(*one) for shard in self._shards for one in shard.index.problems]
        self.usable = self._find_usable(roles)

    def _find_usable(self, roles: int) -> Ints:
        """The numbers of the examples that have what is needed."""
        found = []
        for shard, name, start in zip(self._shards, self.names, self._starts, strict=False):
            has = shard.index.rows["roles"]
            for role in (IMAGE, CAPTION, LABEL, PAIR):
                lacking = int((has & role == 0).sum()) if roles & role else 0
                if lacking:
                    kind = {IMAGE: "missing", CAPTION: "no caption", LABEL: "no class"}.get(role, "empty")
                    sentence = f"{lacking:,} of {len(has):,} examples of {name!r} lack {_ROLE_NAMES[role]}"
                    self.problems.append(Problem(kind, name, sentence))
            found.append(start + np.flatnonzero(has & roles == roles))
        usable: Ints = np.concatenate(found)
        if not len(usable):
            needed = " and ".join(name for role, name in _ROLE_NAMES.items() if roles & role)
            first = f"; {self.problems[0].sentence}" if self.problems else ""
            raise ValueError(f"examples must have {needed}, not one of {self.source!r} has{first}")
        return usable

    def __len__(self) -> int:
        """How many examples there are, usable or not."""
        return int(self._starts[-1])

    def place(self, number: int) -> tuple[ShardReader, int]:
        """The shard of an example, and its number in it."""
        at = int(np.searchsorted(self._starts, number, side="right")) - 1
        return self._shards[at], number - int(self._starts[at])

    def name(self, number: int) -> str:
        """What an example is called: ``train-000003.tar/17``."""
        at = int(np.searchsorted(self._starts, number, side="right")) - 1
        return f"{self.names[at]}/{number - int(self._starts[at])}"

    def find(self, name: str) -> int:
        """The number of the example of a name."""
        shard, _, number = name.rpartition("/")
        return int(self._starts[self._number[shard]]) + int(number)

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The number of each usable example, and what it says; all of it goes into memory."""
        size = _AS_ROWS * sum(shard.text_bytes() for shard in self._shards)
        check_memory(size, f"reading the texts of {self.source!r}", "take fewer shards")
        rows = enumerate(row for shard in self._shards for row in shard.rows())
        usable = np.zeros(len(self), bool)
        usable[self.usable] = True
        return ((number, row) for number, row in rows if usable[number])

    def image(self, number: int) -> bytes:
        """The bytes of its image, as it was encoded; BrokenImage if they can't be had."""
        shard, i = self.place(number)
        try:
            return shard.image(i)
        except OSError as problem:
            raise BrokenImage(f"the image {self.name(number)!r} can't be read: {problem}") from problem

    def column(self, field: str) -> Any:
        """A field of the index, for all examples."""
        return np.concatenate([shard.index.rows[field] for shard in self._shards])

    @property
    def languages(self) -> list[str]:
        """The texts of pairs: those of the first shard that has some."""
        return next((shard.index.languages for shard in self._shards if shard.index.languages), [])

    def labels(self) -> tuple[list[str], Ints]:
        """The names of all classes in their order, and the class of each example; -1 where it has none."""
        known = self._class_names()
        found: dict[str, int] = {}
        of_shards = []
        for shard in self._shards:
            names = [_named(label, known) for label in shard.index.labels]
            to = np.array([*(found.setdefault(name, len(found)) for name in names), -1], np.int64)
            of_shards.append(to[shard.index.rows["label"]])
        numbers = all(name.isdecimal() for name in found)
        stated = {name: i for i, name in enumerate(known or ())}
        order = sorted(found, key=lambda x: (stated.get(x, len(stated)), int(x) if numbers else 0, x))
        places = {name: i for i, name in enumerate(order)}
        place = np.array([*(places[name] for name in found), -1], np.int64)
        return order, place[np.concatenate(of_shards)]

    def _class_names(self) -> list[str] | None:
        """The names of classes that the shards have, or a file beside them."""
        own = [shard.index.classes for shard in self._shards]
        if any(own):
            if any(classes != own[0] for classes in own):
                at = next(i for i, classes in enumerate(own) if classes != own[0])
                raise ValueError(
                    f"all shards of a set must have the same classes, {self.names[at]!r} has others than "
                    f"{self.names[0]!r}"
                )
            return own[0]
        path = self._shards[0].path.parent / CLASSES
        if not path.exists():
            return None
        names = read_json(path, at_most=_MOST_CLASSES)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{str(path)!r} must be a list of the names of classes, got {str(names)[:60]}")
        return names

    def splits(
        self, seed: int, val: float, test: float, strata: Ints | None = None
    ) -> tuple[dict[str, Ints], str]:
        """The examples of each split, and how the splits came about.

        Args:
            seed, val, test: Of the deal, where no shard's name tells its split; where some do, the others are
                trained on.
            strata: The class of each example; each class is dealt by itself.
        """
        stated = [split_of_shard(shard.path) for shard in self._shards]
        if any(stated):
            which = np.searchsorted(self._starts, self.usable, side="right") - 1
            names = np.array([split or "train" for split in stated])[which]
            parts = {str(name): self.usable[names == name] for name in np.unique(names)}
            return {name: parts[name] for name in in_order(dict.fromkeys(parts, 0))}, STATED
        parts = deal(self.usable, seed, val, test, strata)
        return parts, f"{val:g} val, {test:g} test, by a hash of seed {seed} and the place in the shards"

    def size(self, numbers: Ints) -> int:
        """Bytes of some examples, as they lie in their shards; of parquet, once they are unpacked."""
        total = self.column("image_size")[numbers].sum(dtype=np.int64)
        return int(total + self.column("text_size")[numbers].sum(dtype=np.int64))

    def parts(self, numbers: Ints) -> list[tuple[ShardReader, str, Ints, int]]:
        """Some examples by their shards: each with its name, which are in it, and the place of the first."""
        ends = np.searchsorted(numbers, self._starts)
        found = zip(self._shards, self.names, self._starts, ends, ends[1:], strict=False)
        return [(shard, name, numbers[a:b] - start, int(a)) for shard, name, start, a, b in found if b > a]

    def digest(self, parts: dict[str, Ints]) -> str:
        """Names the content of the shards, and which examples are trained on and chosen by."""
        content = [(name, shard.index.digest) for name, shard in zip(self.names, self._shards, strict=True)]
        counts = [(split, len(numbers)) for split, numbers in parts.items() if split in {"train", "val"}]
        return digest_of([*content, *counts])

    def __repr__(self) -> str:
        """How many examples, in how many shards."""
        size = sum(shard.path.stat().st_size for shard in self._shards)
        return f"Shards({self.source!r}, {len(self):,} examples in {len(self.names):,}, {format_bytes(size)})"


def warn_of_problems(dataset: Dataset[Any]) -> None:
    """Tell a training what of its shards can't be used; data of other kinds has its own words."""
    if dataset.layout not in _LAYOUTS.values():
        return
    for problem in dataset.problems[:_NAMED]:
        logger.warning("left out: %s", problem.sentence)
    if (more := len(dataset.problems) - _NAMED) > 0:
        logger.warning("and %d more problems; `sightline data check` lists them", more)


def deal(numbers: Ints, seed: int, val: float, test: float, strata: Ints | None = None) -> dict[str, Ints]:
    """Deal examples to train, val and test by a hash of where they lie: the same on every machine.

    A share is rounded down, but at least one example wherever one is left to learn from.

    Example:
        >>> {name: len(part) for name, part in deal(np.arange(20), 0, 0.1, 0.1).items()}
        {'train': 16, 'val': 2, 'test': 2}
    """
    group = np.zeros(len(numbers), np.int64) if strata is None else strata[numbers]
    order = np.lexsort((hashed_integers(numbers, seed), group))  # by group, then by hash
    ends = np.flatnonzero(np.diff(group[order])) + 1
    parts: dict[str, list[Ints]] = {"train": [], "val": [], "test": []}
    for members in np.split(numbers[order], ends):
        least = int(len(members) > (val > 0) + (test > 0))
        n_val, n_test = (max(int(x * len(members) + 1e-9), least) if x else 0 for x in (val, test))
        parts["val"].append(members[:n_val])
        parts["test"].append(members[n_val : n_val + n_test])
        parts["train"].append(members[n_val + n_test :])
    whole = {name: np.sort(np.concatenate(some)) for name, some in parts.items()}
    return {name: some for name, some in whole.items() if len(some) or name == "train"}


def _named(label: str, known: list[str] | None) -> str:
    """The name of a class: a number counts the names, where there are some."""
    return known[int(label)] if known and label.isdecimal() and int(label) < len(known) else label
