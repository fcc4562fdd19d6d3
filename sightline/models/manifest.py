"""What a run vouches for: ``manifest.json`` has the length and the digest of every file in its folder.

It is written last, when a training has ended or was stopped by a signal, and taken away before the next file
of the run changes. So a folder that has one is as it was left, or says which file is not. A digest tells
accidents: bits that flip, copies cut short, files of two runs in one folder. It is no signature: who can
change a file can write another manifest.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from sightline.border import open_regular, read_json, to_json
from sightline.data.files import atomic_write, fsync_path
from sightline.logs import logger

__all__ = [
    "MANIFEST",
    "changed_files",
    "check_unchanged",
    "drop_manifest",
    "is_forced",
    "read_manifest",
    "trusted",
    "write_manifest",
]

MANIFEST = "manifest.json"
_MOST_BYTES = 1 << 24
# What others write into the folder, at any time: TensorBoard, and commands that are told to.
_OTHERS = frozenset(
    ("confusion.csv", "examples", "logs", "predictions.json", "report.html", "results.html", "scores.json")
)
_LOADED = ("config.json", "model.safetensors", "tokenizer*.json")  # never there unless vouched for

_Entry = Mapping[str, Any]  # bytes, sha256
_FORCED: ContextVar[bool | None] = ContextVar("forced", default=None)  # None: nobody has looked yet


def write_manifest(folder: Path) -> None:
    """Vouch for the files of a run as they are now; the last thing that is written to it.

    Raises:
        OSError: If it can't be written.
    """
    files = {name: _entry(folder / name) for name in _names(folder)}
    with atomic_write(folder / MANIFEST) as beside:
        beside.write_text(to_json({"format": 1, "files": files}, indent=1) + "\n", encoding="utf-8")
    fsync_path(folder)


def drop_manifest(folder: Path) -> None:
    """Vouch for nothing, before a file of the run changes."""
    if (folder / MANIFEST).exists():
        (folder / MANIFEST).unlink()
        fsync_path(folder)


def read_manifest(folder: Path) -> dict[str, _Entry] | None:
    """The length and the digest of each file by its name, or None where nothing vouches for the folder.

    Raises:
        ValueError: If the manifest itself is damaged.
    """
    path = folder / MANIFEST
    if not path.exists() and not path.is_symlink():
        return None
    content = read_json(path, at_most=_MOST_BYTES)
    files = content.get("files") if isinstance(content, dict) else None
    if not isinstance(files, dict) or not all(map(_is_entry, files, files.values())):
        raise ValueError(
            f"a manifest has the bytes and the sha256 of files, {str(path)!r} has not; it was edited or is "
            "another program's"
        )
    return files


def changed_files(folder: Path, manifest: Mapping[str, _Entry], names: Iterable[str]) -> dict[str, str]:
    """What is wrong with some files of a run, by their names; nothing for those that are as they were."""
    problems = {}
    for name in names:
        entry, path = manifest[name], folder / name
        try:
            found = _entry(path)
        except FileNotFoundError:
            problems[name] = "is missing"
        except OSError as problem:
            problems[name] = f"can't be read: {problem}"
        else:
            if found["bytes"] != entry["bytes"]:
                problems[name] = f"has {found['bytes']} bytes, not {entry['bytes']}"
            elif found["sha256"] != entry["sha256"]:
                problems[name] = "has other bytes than were written"
    return problems


def check_unchanged(folder: Path, *, remedy: str, force: bool = False) -> None:
    """Refuse a run whose files are not those it vouches for; its checkpoints have checksums of their own.

    Args:
        folder: The run; one without a manifest vouches for nothing and is taken as it is.
        remedy: Ends the sentence.
        force: Say so and go on.

    Raises:
        ValueError: For the first file that differs.
    """
    try:
        manifest = read_manifest(folder)
        problems = {} if manifest is None else changed_files(folder, manifest, _top(manifest))
        strange = [] if manifest is None else [name for name in _loaded(folder) if name not in manifest]
        sentences = [f"{name!r} {what}" for name, what in problems.items()]
        sentences += [f"{name!r} was not there" for name in strange]
        if not sentences:
            return
        sentence = f"the files of {str(folder)!r} are not those that were written: {sentences[0]}"
    except (ValueError, OSError) as problem:
        sentence = str(problem)
    if not force:
        raise ValueError(f"{sentence}; {remedy}")
    logger.warning("%s; opened all the same", sentence)


@contextmanager
def trusted(folder: Path, *, force: bool) -> Iterator[None]:
    """A block in which a run is loaded: its files are checked once, before it.

    Raises:
        ValueError: If they are not those that were written, and ``force`` was not asked for.
    """
    if _FORCED.get() is None:
        check_unchanged(folder, remedy="copy the run anew, or open it with --force (force=True)", force=force)
    token = _FORCED.set(bool(force or _FORCED.get()))
    try:
        yield
    finally:
        _FORCED.reset(token)


def is_forced() -> bool:
    """Whether the run being loaded is to be opened whatever is wrong with its weights."""
    return bool(_FORCED.get())


def _names(folder: Path) -> list[str]:
    """The files of a run, by their path in it: not what others write, is hidden or half written."""
    found = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if any(part.startswith(".") for part in parts) or parts[0] in {MANIFEST, *_OTHERS}:
            continue
        if path.is_file():
            found.append("/".join(parts))
    return found


def _top(names: Iterable[str]) -> list[str]:
    return [name for name in names if "/" not in name]


def _loaded(folder: Path) -> list[str]:
    """Files that opening a run would read."""
    return [path.name for pattern in _LOADED for path in sorted(folder.glob(pattern))]


def _entry(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    count = 0
    with open_regular(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
            count += len(block)
    return {"bytes": count, "sha256": digest.hexdigest()}


def _is_entry(name: str, entry: Any) -> bool:
    return (
        not name.startswith("/")
        and not {"", ".", ".."} & set(name.split("/"))
        and isinstance(entry, dict)
        and isinstance(entry.get("bytes"), int)
        and isinstance(entry.get("sha256"), str)
    )
