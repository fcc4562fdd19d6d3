"""Writing files whole or not at all, and the sentences for those that can't be written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matplotlib.figure import Figure

PICTURES = (".jpg", ".pdf", ".png", ".svg", ".webp")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Hand out a name beside ``path`` to write to; it takes the place of ``path`` if all goes well.

    Folders on the way are made. If anything goes wrong, what was there before is still there.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "new" / "page.txt"
        >>> with replacing(path) as beside:
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
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as problem:
        reason = problem.strerror.lower() if problem.strerror else str(problem)
        raise OSError(f"can't write {str(path)!r}: {reason}; choose another --out") from problem


def _check_place(path: Path) -> None:
    """Say what stands in the way, where the system's own words would be dim."""
    if path.is_dir():
        raise OSError("it is a folder")
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            raise OSError(f"{str(parent)!r} is a file, not a folder")


def checked_picture(path: Path) -> Path:
    """Refuse the name of a picture in a format that is not known, before any work is done."""
    if path.suffix.lower() not in PICTURES:
        raise ValueError(
            f"a picture's name must end in one of {', '.join(PICTURES)}, got {str(path)!r}; "
            f"try {str(path.with_suffix('.png') if path.name else Path('picture.png'))!r}"
        )
    return path


def save(figure: Figure, path: Path) -> None:
    """Save a figure, in the format that its name ends in."""
    with replacing(checked_picture(path)) as beside:
        figure.savefig(beside)
