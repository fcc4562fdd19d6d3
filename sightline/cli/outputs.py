"""Files that a command writes: whole or not at all, named and told one way."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from sightline.data import files
from sightline.messages import printable
from sightline.untrusted import to_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "FIGURES",
    "PAGES",
    "check_figure",
    "check_output",
    "check_place",
    "output_names",
    "plain_text",
    "print_json",
    "print_line",
    "print_paths",
    "save_figure",
    "save_text",
]

FIGURES = (".jpg", ".pdf", ".png", ".svg", ".webp")
PAGES = (".html", ".htm")
_REMEDY = "choose another --out"


def print_line(text: object = "", *, err: bool = False) -> None:
    """Print a line, whatever names and captions it holds: a terminal shows their controls, not obeys them."""
    typer.echo(printable(text), err=err)


def print_json(value: Any, *, indent: int | None = 1) -> None:
    """Print one JSON object on standard output."""
    typer.echo(to_json(value, indent=indent))


def plain_text(text: object, style: str = "") -> Text:
    """A text for tables, shown as it is: no markup, no controls."""
    return Text(printable(text), style=style)


def print_paths(paths: Sequence[Path]) -> None:
    """Say which files were written: on standard error, since standard output is the answer's."""
    for path in paths:
        print_line(path, err=True)


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
    raise OSError(f"can't write {str(path)!r}: {reason}; {_REMEDY}")


def check_figure(path: Path) -> Path:
    """Refuse the name of a figure in a format that is not known, before any work is done."""
    if path.suffix.lower() not in FIGURES:
        raise ValueError(
            f"a figure's name must end in one of {', '.join(FIGURES)}, got {str(path)!r}; "
            f"try {str(path.with_suffix('.png') if path.name else Path('figure.png'))!r}"
        )
    return path


def check_output(out: Path, n: int = 1, *, folders: bool = True) -> None:
    """Refuse a name that can't hold what n inputs will give, before any work is done."""
    suffix = out.suffix.lower()
    is_folder = folders and (not suffix or out.is_dir())
    if is_folder:
        check_place(out / "1.png")
        return
    if suffix not in (*FIGURES, *PAGES):
        folder = ", or be a folder" if folders else ""
        raise ValueError(
            f"--out must end in .html for a page, or in one of {', '.join(FIGURES)} for a figure{folder}, "
            f"got {str(out)!r}"
        )
    if suffix in FIGURES and n > 1:
        raise ValueError(
            f"one figure shows one input, got {n} and --out {str(out)!r}; name a page or a folder"
        )
    check_place(out)


def output_names(inputs: Sequence[Any]) -> list[str]:
    """A name for each input's figure: that of its file, or its number; numbered where two are alike.

    Example:
        >>> output_names([Path("a/x.jpg"), Path("b/x.png"), Path("y.jpg"), "Guten Tag!"])
        ['x-1', 'x-2', 'y', '4']
    """
    stems = [x.stem if isinstance(x, Path) else str(i) for i, x in enumerate(inputs, 1)]
    count, met = Counter(stems), Counter[str]()
    names = []
    for stem in stems:
        met[stem] += 1
        names.append(stem if count[stem] == 1 else f"{stem}-{met[stem]}")
    return names


def save_figure(figure: "Figure", path: Path) -> None:
    """Save a figure, in the format that its name ends in."""
    with files.atomic_write(check_figure(path), remedy=_REMEDY) as beside:
        figure.savefig(beside)


def save_text(text: str, path: Path) -> None:
    """Save a page or a table."""
    with files.atomic_write(path, remedy=_REMEDY) as beside:
        beside.write_text(text, encoding="utf-8")
