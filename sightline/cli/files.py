"""Writing files whole or not at all, and the sentences for those that can't be written."""

import os
from contextlib import AbstractContextManager
from pathlib import Path

from matplotlib.figure import Figure

from sightline.data import files

PICTURES = (".jpg", ".pdf", ".png", ".svg", ".webp")


def replacing(path: Path) -> AbstractContextManager[Path]:
    """Write a file that --out named, whole or not at all; see :func:`sightline.data.files.atomic_write`."""
    return files.atomic_write(path, remedy="choose another --out")


def check_place(path: Path) -> None:
    """Refuse a place that a file can't be written to, before any work is done; nothing is made there."""
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if path.is_dir():
        reason = "it is a folder"
    elif not above.is_dir():
        reason = f"{str(above)!r} is a file, not a folder"
    elif not os.access(above, os.W_OK | os.X_OK):
        reason = "permission denied"
    else:
        return
    raise OSError(f"can't write {str(path)!r}: {reason}; choose another --out")


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
