"""Checks at the border: files, JSON and memory that somebody else has a say in.

    read_bytes(path, at_most=16 << 20)       # a regular file of bounded size, or a sentence
    parse_json(text, "config.json")          # bounded in depth and in the digits of its numbers
    to_json(value)                           # JSON that every reader takes: no NaN
    check_memory(count, "the model")         # refused before it is asked for
    need("safetensors", "a run", "look")     # a library, or the line that installs it

What is wrong is always a ValueError or an OSError with one sentence: the rule, the value, the remedy.
"""

import importlib
import json
import math
import os
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

__all__ = [
    "MOST_BYTES",
    "check_memory",
    "check_regular",
    "check_unicode",
    "format_bytes",
    "free_memory",
    "need",
    "open_regular",
    "parse_json",
    "read_bytes",
    "read_json",
    "to_json",
]

MOST_BYTES = 1 << 30  # of one file that is read as a whole
MOST_JSON = 1 << 28  # of one file of JSON: tokenizers of the largest vocabularies have a tenth of that
DEEPEST = 100  # lists in lists in lists; a config has 4

_FILE_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# JSON may hold what a terminal obeys, C1 controls and marks that turn the direction of a line, and halves of
# letters that no file can hold.
_OBEYED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def open_regular(path: Path, *, at_most: int | None = None) -> BinaryIO:
    """Open a file to read, if it is a regular one: a pipe would wait for ever, a device never end.

    Args:
        path: The file; links are followed.
        at_most: The most bytes that it may have; None: any number.

    Raises:
        OSError: If it is not there, no regular file, or too large.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _check_kind(os.fstat(descriptor), path, at_most)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def _check_kind(about: os.stat_result, path: Path, at_most: int | None) -> None:
    kind = stat.S_IFMT(about.st_mode)
    if kind != stat.S_IFREG:
        what = _FILE_KINDS.get(kind, "something else")
        raise OSError(f"a regular file can be read, {str(path)!r} is {what}; copy it to a file")
    if at_most is not None and about.st_size > at_most:
        raise OSError(
            f"a file read as a whole may have {format_bytes(at_most)}, {str(path)!r} has "
            f"{format_bytes(about.st_size)}; split it"
        )


def check_regular(path: Path, *, at_most: int | None = None) -> None:
    """Refuse what :func:`open_regular` refuses; for libraries that open files by themselves."""
    open_regular(path, at_most=at_most).close()


def check_unicode(path: Path, what: str) -> None:
    """Refuse a place to write to whose name is no UTF-8: weights are not read from there again.

    Args:
        path: The place; Python has halves of letters for bytes that are none.
        what: For the sentence: "a run folder".

    Raises:
        ValueError: If it has one.
    """
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(
            f"the path of {what} must be UTF-8, which {str(path)!a} is not; choose another name"
        ) from None


def read_bytes(path: Path, *, at_most: int = MOST_BYTES) -> bytes:
    """The content of a regular file of bounded size.

    Raises:
        OSError: If it is no such file, or it grows while it is read.
    """
    with open_regular(path, at_most=at_most) as file:
        content = file.read(min(at_most, os.fstat(file.fileno()).st_size) + 1)  # room is made for all of it
        content += file.read(at_most + 1 - len(content)) if len(content) <= at_most else b""
    if len(content) > at_most:
        raise OSError(f"a file read as a whole may have {format_bytes(at_most)}, {str(path)!r} has more")
    return content


def read_json(path: Path, *, at_most: int = MOST_JSON) -> Any:
    """The JSON in a file.

    Raises:
        OSError: If it is no regular file of bounded size.
        ValueError: If it is no JSON, or one that no program of ours wrote.
    """
    try:
        text = read_bytes(path, at_most=at_most).decode("utf-8")
    except UnicodeDecodeError as problem:
        raise ValueError(
            f"{str(path)!r} is not JSON: its byte {problem.start} is no UTF-8; it was damaged or edited"
        ) from problem
    return parse_json(text, repr(str(path)))


def parse_json(text: str, where: str) -> Any:
    """JSON from a text.

    Args:
        text: The JSON.
        where: The file, for sentences.

    Raises:
        ValueError: If it is none, is nested more than ``DEEPEST`` deep, or holds a number that is too long.

    Example:
        >>> parse_json('{"a": [1, 2]}', "x.json")
        {'a': [1, 2]}
        >>> parse_json("[" * 1000, "x.json")
        Traceback (most recent call last):
        ValueError: JSON may be nested 100 deep, x.json is deeper; is it another program's file?
    """
    if _is_deep(text):
        raise ValueError(
            f"JSON may be nested {DEEPEST} deep, {where} is deeper; is it another program's file?"
        )
    try:
        return json.loads(text)
    except ValueError as problem:  # also a number of thousands of digits
        reason = str(problem).partition(" for integer string conversion")[0]
        raise ValueError(f"{where} is not JSON: {reason}; it was cut off or edited") from problem


def _is_deep(text: str) -> bool:
    """Whether brackets are nested deeper than DEEPEST, those in strings left out."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return False
    depth = 0
    for mark in re.finditer(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', text, re.DOTALL):
        sign = mark[0]
        depth += 1 if sign in "[{" else -1 if sign in "]}" else 0
        if depth > DEEPEST:
            return True
    return False


def to_json(value: Any, *, indent: int | None = None) -> str:
    r"""A value as JSON that every reader takes: what is no number is null, controls are escaped.

    Example:
        >>> to_json({"score": math.nan, "text": "é\x9b"})
        '{"score": null, "text": "é\\u009b"}'
    """
    text = json.dumps(_finite(value), indent=indent, ensure_ascii=False, allow_nan=False)
    return _OBEYED.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def check_memory(count: int, what: str, remedy: str = "choose less") -> None:
    """Refuse what would need more memory than is free, before any of it is asked for.

    Args:
        count: Bytes that it needs.
        what: For the sentence: "the model".
        remedy: Ends the sentence.

    Raises:
        ValueError: If there is not so much.
    """
    free = free_memory()
    if free is not None and count > free:
        raise ValueError(
            f"{what} needs {format_bytes(count)} of memory, {format_bytes(free)} are free; {remedy}"
        )


def free_memory() -> int | None:
    """Bytes of memory that this process may still have, as far as the system tells; None: it does not."""
    known = [n for n in (_available(), _group_rest(), _process_rest()) if n is not None]
    return min(known, default=None)


def _available() -> int | None:
    try:
        found = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
    except OSError:
        found = None
    if found is not None:
        return int(found[1]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _group_rest() -> int | None:
    """What the limit of a container leaves."""
    group = Path("/sys/fs/cgroup")
    try:
        most, used = ((group / name).read_text("ascii").strip() for name in ("memory.max", "memory.current"))
        return None if most == "max" else max(0, int(most) - int(used))
    except (OSError, ValueError):
        return None


def _process_rest() -> int | None:
    """What ``ulimit`` leaves."""
    if sys.platform == "win32":
        return None
    import resource  # noqa: PLC0415

    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()
        whole, data = (int(pages[i]) * resource.getpagesize() for i in (0, 5))
    except OSError:
        whole, data = 0, 0
    used = {resource.RLIMIT_AS: whole, resource.RLIMIT_DATA: data}
    limits = {limit: resource.getrlimit(limit)[0] for limit in used}
    left = [max(0, most - used[x]) for x, most in limits.items() if most != resource.RLIM_INFINITY]
    return min(left, default=None)


def format_bytes(count: int) -> str:
    """A number of bytes as people say it.

    Example:
        >>> format_bytes(3_200_000_000), format_bytes(1 << 20), format_bytes(12)
        ('3.2 GB', '1.0 MB', '12 bytes')
    """
    for size, unit in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def need(package: str, what: str, extra: str) -> Any:
    """A library that is an extra.

    Raises:
        ImportError: If it is not installed; the sentence has the line that installs it.
    """
    try:
        return importlib.import_module(package)
    except ImportError as missing:
        root = package.partition(".")[0]
        raise ImportError(
            f"{what} needs {root}, which is not installed; pip install 'sightline[{extra}]'", name=root
        ) from missing
