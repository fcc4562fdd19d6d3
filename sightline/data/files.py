"""Writing files whole or not at all, the sentences for those that can't be, and reading out of one."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sightline.untrusted import open_regular

if sys.platform != "win32":
    import fcntl

__all__ = ["OpenFile", "atomic_write", "fsync_path", "lock_path", "reason", "user_cache"]


@contextmanager
def atomic_write(path: Path, *, remedy: str = "choose another place") -> Iterator[Path]:
    """Hand out a name beside ``path`` to write to; it takes the place of ``path`` if all goes well.

    Folders on the way are made. What was written is on the disk before it takes its place, so that even a
    machine that loses power keeps the old file or the new one, whole. If anything goes wrong, what was there
    before is still there.

    Args:
        path: What is to be written.
        remedy: Ends the sentence of the error, if it can't be written.

    Raises:
        OSError: If it can't be written; the sentence names it, the reason and the remedy.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "new" / "page.txt"
        >>> with atomic_write(path) as beside:
        ...     _ = beside.write_text("whole")
        >>> path.read_text()
        'whole'
    """
    beside = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")
    try:
        _check_place(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield beside
            fsync_path(beside)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as problem:
        raise OSError(f"can't write {str(path)!r}: {reason(problem)}; {remedy}") from problem


class OpenFile:
    """A regular file that threads read from at once, closed when nobody has it any more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open_regular(path) as file:
            self._number = os.dup(file.fileno())

    def __del__(self) -> None:
        if hasattr(self, "_number"):
            os.close(self._number)

    def read(self, offset: int, size: int) -> bytes:
        """So many bytes from a place on.

        Raises:
            OSError: If there are not so many.
        """
        content = os.pread(self._number, int(size), int(offset))
        if len(content) < size:
            raise OSError(f"the file {str(self.path)!r} is shorter than it was; copy it anew")
        return content


@contextmanager
def lock_path(path: Path, *, refusal: str | None = None) -> Iterator[None]:
    """Hold the system's lock on a folder or a file, which a killed process loses.

    On a disk or a system without locks there is none.

    Args:
        path: A folder that is there, or a file, made if it is not.
        refusal: The sentence where another process holds it; None waits for that one.

    Raises:
        ValueError: If another process holds it and there is a refusal.
    """
    if sys.platform == "win32":  # it has no such locks
        yield
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if refusal is None else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(handle)
        raise ValueError(refusal) from None
    except OSError:  # a disk without locks
        pass
    try:
        yield
    finally:
        os.close(handle)


def reason(problem: OSError) -> str:
    """The system's reason, as the middle of a sentence.

    Example:
        >>> reason(OSError(28, "No space left on device"))
        'no space left on device'
    """
    return problem.strerror.lower() if problem.strerror else str(problem)


def user_cache(name: str) -> Path:
    """A folder for what can be made again: in ``SIGHTLINE_CACHE``, or in the user's own cache."""
    own = os.environ.get("SIGHTLINE_CACHE")
    if own:
        return Path(own) / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sightline" / name


def fsync_path(path: Path) -> None:
    """Wait until what was written to a file, or the names in a folder, can't be lost any more."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_place(path: Path) -> None:
    """Say what stands in the way, where the system's own words would be dim."""
    if path.is_dir():
        raise OSError("it is a folder")
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            raise OSError(f"{str(parent)!r} is a file, not a folder")
