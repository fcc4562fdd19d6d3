"""What lies where in one shard, and the user's cache of it: 30 bytes an example."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sightline.data.files import atomic_write, user_cache
from sightline.messages import logger

__all__ = ["ROW", "ShardIndex", "cached_index"]

# In tar, image and text are the offsets of the two; in parquet, the group of rows and the row in it.
ROW = np.dtype(
    [
        ("image", "<i8"),
        ("image_size", "<u4"),
        ("text", "<i8"),
        ("text_size", "<u4"),
        ("plain", "?"),  # whether the text is lines, and no JSON
        ("label", "<i4"),
        ("roles", "u1"),
    ]
)
_VERSION = 3


@dataclass(eq=False)
class ShardIndex:
    """What lies where in one shard.

    Attributes:
        rows: For each example where its image and its text are, its label and what it can be used for.
        labels: The names that the labels count.
        problems: ``[kind, name, sentence]`` of what can't be used.
        languages: The texts that pairs have, where there are pairs.
        classes: The names of all classes in their order, where the shard has them.
        digest: Names the content.
    """

    rows: NDArray[np.void]
    labels: list[str] = field(default_factory=list)
    problems: list[list[str]] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    classes: list[str] | None = None
    digest: str = ""


def cached_index(path: Path, build: Callable[[Path], ShardIndex]) -> ShardIndex:
    """The index of a shard: from the cache while the file has its size and time, else made anew."""
    about = path.stat()
    stamp = [_VERSION, about.st_size, about.st_mtime_ns]
    name = hashlib.blake2b(str(path.resolve()).encode(errors="surrogatepass"), digest_size=16).hexdigest()
    kept = user_cache("shards") / f"{name}.npz"
    found = _load(kept, stamp)
    if found is None:
        found = build(path)
        try:
            _save(kept, stamp, found)
        except OSError as problem:
            logger.debug("the index of %r is not kept: %s", str(path), problem)
    return found


def _save(path: Path, stamp: list[int], index: ShardIndex) -> None:
    about = {
        "stamp": stamp,
        "labels": index.labels,
        "problems": index.problems,
        "languages": index.languages,
        "classes": index.classes,
        "digest": index.digest,
    }
    with atomic_write(path) as beside, beside.open("wb") as file:
        np.savez(file, rows=index.rows, about=np.frombuffer(json.dumps(about).encode(), np.uint8))


def _load(path: Path, stamp: list[int]) -> ShardIndex | None:
    try:
        with np.load(path, allow_pickle=False) as kept:
            about = json.loads(kept["about"].tobytes())
            if about.pop("stamp") != stamp or kept["rows"].dtype != ROW:
                return None
            return ShardIndex(kept["rows"], **about)
    except FileNotFoundError:
        return None
    except Exception as problem:  # noqa: BLE001 - a damaged file raises anything; the index is made anew
        logger.debug("the index %r can't be read: %s", str(path), problem)
        return None
