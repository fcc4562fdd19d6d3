"""The files of the page, read once at the start: no address of a client is ever looked up on the disk."""

import hashlib
from dataclasses import dataclass
from importlib import resources

__all__ = ["Asset", "read_assets"]

_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOLDERS = (("sightline.serve", "static"), ("sightline.show", "explorer"))


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
    """All files of the page and of the explorer, by their names."""
    found = {}
    for package, folder in _FOLDERS:
        for file in (resources.files(package) / folder).iterdir():
            kind = _KINDS.get(file.name[file.name.rfind(".") :])
            if kind is not None and file.is_file():
                content = file.read_bytes()
                etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
                found[file.name] = Asset(content=content, kind=kind, etag=etag)
    return found
