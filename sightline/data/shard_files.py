"""Which files are the shards of a set: tar or parquet, by a folder, a file or a pattern.

======================================  ====================================================================
``shards/``                              a folder with ``train-000000.tar``, ... or ``train-000000.parquet``
``shards/train-{000000..000063}.tar``    braces: a range of numbers, or ``{train,val}``
``'shards/*.parquet'``                   ``*``, ``?`` and ``[...]``
``shards/train-000000.tar``              one shard
======================================  ====================================================================
"""

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from sightline.data.dataset import split_of_path
from sightline.untrusted import check_regular

__all__ = ["TAR", "find_shards", "is_pattern", "is_there", "split_of_shard"]

TAR = ".tar"
_PARQUET = ".parquet"
_MOST = 100_000  # shards that a pattern may name
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_NUMBERED = re.compile(r"(-\d{6,}\.parquet|(^|[-_.])\d+\.tar)$", re.IGNORECASE)  # as writers call them


def is_pattern(place: Path | str) -> bool:
    """Whether a name stands for several files."""
    return bool(_BRACES.search(str(place)) or glob.has_magic(str(place))) and not Path(place).exists()


def is_there(place: Path | str) -> bool:
    """Whether there is a file or a folder of that name, or a pattern finds one."""
    path = Path(place).expanduser()
    return path.exists() or (is_pattern(path) and bool(_matches(str(path))))


def find_shards(place: Path | str) -> list[Path] | None:
    """The shards at a place, sorted by name; None where it is data of another kind.

    Raises:
        FileNotFoundError: If a pattern finds nothing, or braces name a file that is not there.
        ValueError: If tar and parquet are mixed, or a pattern finds other files.

    Example:
        >>> find_shards("tests") is None
        True
    """
    path = Path(place)
    if is_pattern(path):
        found = _matches(str(path))
        if not found:
            raise FileNotFoundError(f"no file is named like {str(path)!r}")
        return _checked(found, str(path))
    if path.suffix.lower() == TAR and path.exists() and not path.is_dir():
        return _checked([path], str(path))
    if not path.is_dir():
        return None
    inside = sorted(x for x in path.iterdir() if not x.name.startswith(".") and not x.is_dir())
    tars = [x for x in inside if x.suffix.lower() == TAR]
    numbered = [x for x in inside if _NUMBERED.search(x.name)]
    # A tar among other files may be anything.
    found = [x for x in numbered if x in tars] or (tars if len(tars) == len(inside) else numbered)
    return _checked(found, str(path)) if found else None


def split_of_shard(path: Path) -> str | None:
    """The split that a shard's name tells; None where it tells none.

    Example:
        >>> [split_of_shard(Path(x)) for x in ("train-000003.tar", "imagenet-val-01.tar", "cc3m-000003.tar")]
        ['train', 'val', None]
    """
    stem = re.sub(r"(?<!-of)-\d+$", "", path.stem)
    last = re.split(r"[-_.]", stem)[-1]
    names = (f"{stem}{path.suffix}", f"{last}{path.suffix}", f"{path.parent.name}/-")
    return next((split for name in names if (split := split_of_path(name))), None)


def _checked(paths: Sequence[Path], place: str) -> list[Path]:
    endings = {path.suffix.lower() for path in paths}
    if strange := endings - {TAR, _PARQUET}:
        raise ValueError(f"shards end in .tar or .parquet, {place!r} has one that ends in {min(strange)!r}")
    if len(endings) > 1:
        raise ValueError(
            f"the shards of a set are all tar or all parquet, {place!r} has both; name one kind, as "
            f"{place + '/*.tar' if Path(place).is_dir() else '*.tar'!r}"
        )
    for path in paths:
        check_regular(path)
    return sorted(paths)


def _matches(pattern: str) -> list[Path]:
    return [
        Path(match)
        for one in _expanded(pattern)
        for match in (sorted(glob.glob(one)) if glob.has_magic(one) else [one])  # noqa: PTH207 - absolute or not
        if glob.has_magic(one) or Path(one).exists() or _missing(one, pattern)
    ]


def _missing(one: str, pattern: str) -> bool:
    raise FileNotFoundError(f"there is no {one!r}, which {pattern!r} names")


def _expanded(pattern: str) -> list[str]:
    """A pattern without its braces: all that they stand for."""
    found = [pattern]
    while any(_BRACES.search(one) for one in found):
        wider = []
        for one in found:
            braces = _BRACES.search(one)
            choices = _choices(braces[1]) if braces else [""]
            wider += [one[: braces.start()] + x + one[braces.end() :] if braces else one for x in choices]
            if len(wider) > _MOST:
                raise ValueError(f"a pattern may name {_MOST:,} shards, {pattern!r} names more")
        found = wider
    return found


def _choices(inside: str) -> Sequence[str]:
    numbers = _RANGE.fullmatch(inside)
    if numbers is None:
        return inside.split(",")
    first, last = int(numbers[1]), int(numbers[2])
    if not 0 <= last - first < _MOST:
        raise ValueError(f"a range of shards goes up, to at most {_MOST:,} of them, got {{{inside}}}")
    return [str(i).zfill(len(numbers[1])) for i in range(first, last + 1)]
