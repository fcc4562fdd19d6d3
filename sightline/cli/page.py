"""A page of pictures: a heading, an introduction, and each picture with its title and what to see in it."""

from collections.abc import Sequence
from pathlib import Path

from sightline.cli.mechanism import Picture
from sightline.show.document import document, escaped, figure_tag


def page(title: str, introduction: str, pictures: Sequence[tuple[Picture, Path]], after: str = "") -> str:
    """Write the page: a heading, an introduction, each PNG with its title and caption, HTML that follows."""
    parts = [f"<h1>{escaped(title)}</h1>", f"<p>{escaped(introduction)}</p>"]
    for picture, path in pictures:
        parts.append(f"<h2>{escaped(picture.title)}</h2>")
        inches = float(picture.figure.get_figwidth())
        parts.append(figure_tag(path.read_bytes(), alt=picture.title, caption=picture.caption, inches=inches))
    return document(title, "\n".join([*parts, after]))
