"""The files of the page, read once at the start: no address of a client is ever looked up on the disk."""

import hashlib
from dataclasses import dataclass
from importlib import resources

from sightline.show.explorer import script, style

__all__ = ["Asset", "read_assets"]

_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, kw_only=True)
class Asset:
    """A file of the page.

    Attributes:
        content: All of it.
        kind: Its media type.
        etag: Another one for another content.
    """

    content: bytes
    kind: str
    etag: str


def read_assets() -> dict[str, Asset]:
    """All files of the page by their names, and the explorer's script and style."""
    files = [file for file in (resources.files("sightline.serve") / "static").iterdir() if file.is_file()]
    contents = {file.name: file.read_bytes() for file in files}
    contents |= {"explorer.js": script().encode(), "explorer.css": style().encode()}
    return {
        name: Asset(
            content=content,
            kind=_KINDS[name[name.rfind(".") :]],
            etag=f'"{hashlib.sha256(content).hexdigest()[:16]}"',
        )
        for name, content in contents.items()
    }
