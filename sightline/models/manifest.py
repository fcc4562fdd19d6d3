"""What a run vouches for: ``manifest.json`` has the length and the digest of the files that open it.

It is written last, when a training has ended or was stopped by a signal, and taken away before the next file
of the run changes. Where a run is opened, the config, the weights and the tokenizers are held against it. A
digest tells accidents: bits that flip, copies cut short, files of two runs in one folder. It is not a
signature: who can change a file can write another manifest.
"""

import hashlib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sightline.data.files import atomic_write, fsync_path
from sightline.messages import logger
from sightline.untrusted import open_regular, read_json, to_json

__all__ = [
    "FORCE_REMEDY",
    "MANIFEST",
    "changed_files",
    "check_unchanged",
    "drop_manifest",
    "entries_of",
    "read_manifest",
    "write_manifest",
]

MANIFEST = "manifest.json"
FORCE_REMEDY = "copy the run anew, or open it with --force (force=True)"
_MOST_BYTES = 1 << 24
_LOADED = ("config.json", "model.safetensors", "tokenizer*.json")  # what opening a run reads

_Entry = Mapping[str, Any]  # bytes, sha256


def write_manifest(folder: Path) -> None:
    """Vouch for the files of a run as they are now; the last thing that is written to it.

    Raises:
        OSError: If it can't be written.
    """
    files = entries_of(folder, _loaded(folder))
    with atomic_write(folder / MANIFEST) as beside:
        beside.write_text(to_json({"format": 1, "files": files}, indent=1) + "\n", encoding="utf-8")
    fsync_path(folder)


def entries_of(folder: Path, names: Iterable[str]) -> dict[str, _Entry]:
    """Return the length and the digest of some files as they are now, by their names.

    Raises:
        OSError: If one can't be read.
    """
    return {name: _entry(folder / name) for name in names}


def drop_manifest(folder: Path) -> None:
    """Vouch for nothing, before a file of the run changes."""
    if (folder / MANIFEST).exists():
        (folder / MANIFEST).unlink()
        fsync_path(folder)


def read_manifest(folder: Path) -> dict[str, _Entry] | None:
    """Return the length and the digest of each file by its name, or None where there is no manifest.

    Raises:
        ValueError: If the manifest itself is damaged.
    """
    path = folder / MANIFEST
    if not path.exists() and not path.is_symlink():
        return None
    content = read_json(path, at_most=_MOST_BYTES)
    files = content.get("files") if isinstance(content, dict) else None
    if not isinstance(files, dict) or not all(map(_is_entry, files.values())):
        raise ValueError(
            f"a manifest has the bytes and the sha256 of files, {str(path)!r} has not; it was edited or is "
            "another program's"
        )
    return files


def changed_files(folder: Path, manifest: Mapping[str, _Entry], names: Iterable[str]) -> dict[str, str]:
    """Return what is wrong with some files of a run, by name, without those that are as written."""
    found = {name: _problem(folder / name, manifest.get(name)) for name in names}
    return {name: what for name, what in found.items() if what}


def check_unchanged(folder: Path, *, remedy: str, force: bool = False) -> None:
    """Refuse a run whose config, weights or tokenizers are not those it vouches for.

    Args:
        folder: The run; one without a manifest vouches for nothing and is taken as it is.
        remedy: Ends the sentence.
        force: Say so and go on.

    Raises:
        ValueError: For the first file that differs.
    """
    try:
        manifest = read_manifest(folder)
        if manifest is None:
            return
        # a manifest of an earlier version has further files, which nothing here reads
        vouched = [name for name in manifest if any(fnmatchcase(name, pattern) for pattern in _LOADED)]
        names = dict.fromkeys([*vouched, *_loaded(folder)])
        wrong = [f"{name!r} {what}" for name, what in changed_files(folder, manifest, names).items()]
        if not wrong:
            return
        sentence = f"the files of {str(folder)!r} are not those that were written: {wrong[0]}"
    except (ValueError, OSError) as problem:
        sentence = str(problem)
    if not force:
        raise ValueError(f"{sentence}; {remedy}")
    logger.warning("%s; opened all the same", sentence)


def _loaded(folder: Path) -> list[str]:
    """The files that opening a run would read."""
    return [path.name for pattern in _LOADED for path in sorted(folder.glob(pattern))]


def _problem(path: Path, entry: _Entry | None) -> str:
    """What is wrong with a file; empty if it is as it was written."""
    if entry is None:
        return "was not there"
    try:
        found = _entry(path)
    except FileNotFoundError:
        return "is missing"
    except OSError as problem:
        return f"can't be read: {problem}"
    if found["bytes"] != entry["bytes"]:
        return f"has {found['bytes']} bytes, not {entry['bytes']}"
    return "" if found["sha256"] == entry["sha256"] else "has other bytes than were written"


def _entry(path: Path) -> dict[str, Any]:
    digest, count = hashlib.sha256(), 0
    with open_regular(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
            count += len(block)
    return {"bytes": count, "sha256": digest.hexdigest()}


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("bytes"), int)
        and isinstance(entry.get("sha256"), str)
    )
