"""What every set of examples can say of itself, and the rules that all of them share.

A set has splits. Their names are spelled one way (:func:`split_name`) and found one way (:func:`find_split`);
where the data states none, the examples are dealt one way (:func:`hash_split`). A run resumes only with the
examples it began with, which :func:`digest_of` names.
"""

import difflib
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from sightline.settings import setting
from sightline.shapes import did_you_mean

__all__ = [
    "DEALS",
    "SPLITS",
    "STATED",
    "Dataset",
    "Deal",
    "Problem",
    "check_deal",
    "deal_setting",
    "digest_of",
    "find_split",
    "hash_split",
    "in_order",
    "missing_split",
    "split_name",
    "split_of_path",
]

SPLITS = ("train", "val", "test")
ALL = "all"  # every example, whatever its split
STATED = "stated"  # how splits came about, where the data says so itself
DEALS = ("hash", "0.1")  # the rule of today, and those that version 0.1 had for pairs and for classes
Deal = Literal["hash", "0.1"]

_SPELLINGS = {
    "train": "train", "training": "train", "restval": "train",  # Karpathy's rest of val is trained on
    "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
_SPELLED = re.compile(rf"({'|'.join(sorted(_SPELLINGS, key=len, reverse=True))})([._-].*)?", re.DOTALL)
_SHARD = re.compile(r"-\d{5}-of-\d{5}(-[0-9a-f]+)?$")

Example_co = TypeVar("Example_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with the data and costs no more than an example.

    Attributes:
        kind: ``"missing"``, ``"broken"``, ``"no caption"``, ...
        name: Which example, or which file.
        sentence: What is wrong, for people.
    """

    kind: str
    name: str
    sentence: str


@runtime_checkable
class Dataset(Protocol[Example_co]):
    """Examples in splits, whatever an example is.

    Attributes:
        source: The folder, the file, or the embedded set's name.
        layout: Which of the formats it has.
        rule: How the splits came about.
        problems: What could not be used, and why.
    """

    @property
    def source(self) -> str: ...  # noqa: D102
    @property
    def layout(self) -> str: ...  # noqa: D102
    @property
    def rule(self) -> str: ...  # noqa: D102
    @property
    def problems(self) -> Sequence[Problem]: ...  # noqa: D102

    def splits(self) -> dict[str, int]:
        """How many examples each split has: train, val and test first."""

    def split(self, name: str) -> Sequence[Example_co]:
        """The examples of a split, by its name, another spelling of it, or the beginning of it; ``all``."""

    def digest(self) -> str:
        """Names the examples of train and val: a run only resumes with the same."""


def split_name(name: str) -> str:
    """How we spell a split: in small letters, and ``val`` for validation, valid and dev.

    Example:
        >>> split_name("dev"), split_name("validation_2"), split_name("test_2016"), split_name("Extra")
        ('val', 'val_2', 'test_2016', 'extra')
    """
    name = name.strip().lower()
    known = _SPELLED.fullmatch(name)
    return _SPELLINGS[known[1]] + (known[2] or "") if known else name


def split_of_path(path: str) -> str | None:
    """The split that a file's name tells, or else the nearest folder that has a split's name; or None.

    Example:
        >>> split_of_path("data/train-00000-of-00002.parquet"), split_of_path("default/dev/0000.parquet")
        ('train', 'val')
        >>> split_of_path("test_2016.tsv"), split_of_path("trainers/photos.csv")
        ('test_2016', None)
    """
    *folders, last = PurePosixPath(path).parts
    stem = _SHARD.sub("", last.rpartition(".")[0] or last)
    if _SPELLED.fullmatch(stem.lower()):
        return split_name(stem)
    return next((split_name(part) for part in reversed(folders) if part.lower() in _SPELLINGS), None)


def find_split(name: str, there: Iterable[str]) -> str | None:
    """The split that a name means: itself, in another spelling, or the only one that begins so; or None.

    Example:
        >>> [find_split(name, ["train", "val", "test_2016"]) for name in ("validation", "test", "t")]
        ['val', 'test_2016', None]
    """
    there = list(there)
    for wanted in (name, split_name(name)):
        if wanted in there:
            return wanted
    alike = [split for split in there if split.startswith(split_name(name))]
    return alike[0] if len(alike) == 1 else None


def missing_split(name: str, counts: Mapping[str, int], source: str, *, remedy: str = "") -> ValueError:
    """The error for a split that is not there: which there are, and which to take.

    Args:
        name: What was asked for.
        counts: What there is.
        source: The set.
        remedy: How the set would get a split of that name.

    Example:
        >>> print(missing_split("test", {"train": 5, "val": 2}, "coco"))
        there is no split 'test' in 'coco', which has 'train' (5), 'val' (2); take --split val
    """
    there = ", ".join(f"{split!r} ({n})" for split, n in counts.items()) or "none"
    near = [split for split in counts if split.startswith(name)]
    near += difflib.get_close_matches(name, list(counts), n=1)
    if split_name(name) == "test" and "val" in counts:
        near.append("val")  # the other one that nobody has learned from
    remedies = [f"take --split {near[0]}"] if near else []
    remedies += [remedy] if remedy and split_name(name) in SPLITS else []
    remedies = remedies or (["choose one of these"] if counts else [])
    ending = f"; {', or '.join(remedies)}" if remedies else ""
    return ValueError(f"there is no split {name!r} in {source!r}, which has {there}{ending}")


def in_order(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by split, train, val and test first, then the others by the alphabet."""
    first = [name for name in SPLITS if name in counts]
    return {name: counts[name] for name in [*first, *sorted(set(counts) - set(first))]}


def hash_split(
    keys: Iterable[str],
    *,
    seed: int = 0,
    val: float = 0.1,
    test: float = 0.1,
    strata: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Deal examples to train, val and test by what they are called: the same on every machine.

    The keys are put in the order of a hash of seed and key. The first share is val, the second test, the rest
    train; a share is rounded down, but is at least one example wherever one is left to learn from.

    Args:
        keys: A name for each example; equal ones stay together.
        seed: Another seed, another order.
        val, test: The shares.
        strata: A class for each key; each class is dealt by itself.

    Example:
        >>> split = hash_split(["a", "b", "c", "d"])
        >>> sorted(split.values())
        ['test', 'train', 'train', 'val']
    """
    if not (val >= 0 and test >= 0 and val + test < 1):
        raise ValueError(
            f"the shares of val and test must be at least 0, and below 1 together, got {val} and {test}"
        )
    groups: dict[str, list[str]] = {}
    for key in dict.fromkeys(keys):
        groups.setdefault("" if strata is None else strata[key], []).append(key)
    dealt = {}
    for group in groups.values():
        group.sort(key=lambda key: hashlib.sha256(f"{seed}/{key}".encode(errors="surrogatepass")).digest())
        at_least = int(len(group) > (val > 0) + (test > 0))
        n_val, n_test = (
            max(math.floor(share * len(group) + 1e-9), at_least) if share else 0 for share in (val, test)
        )
        for i, key in enumerate(group):
            dealt[key] = "val" if i < n_val else "test" if i < n_val + n_test else "train"
    return dealt


def deal_setting() -> Any:
    """The setting of the rule of dealing; a run that does not have it was dealt as version 0.1 did."""
    rule = "How examples are dealt to the splits, where the data states none."
    return setting("hash", rule, choices=DEALS, former="0.1", advanced=True)


def check_deal(deal: str) -> None:
    """Refuse a rule of dealing that is none."""
    if deal not in DEALS:
        raise ValueError(f"unknown deal {deal!r}, {did_you_mean(deal, DEALS)}")


def digest_of(examples: Iterable[Sequence[Any]]) -> str:
    """A short name for examples, each some plain values; other examples, or in another order, have another.

    Example:
        >>> digest_of([("a.jpg", "a dog"), ("b.jpg", "a cat")])
        '9c8aece2cb7e'
    """
    found = hashlib.blake2b(digest_size=6)
    for example in examples:
        found.update(json.dumps(list(example)).encode())
    return found.hexdigest()
