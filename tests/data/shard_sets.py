"""Small shards, sound and hostile."""

import io
import tarfile
from pathlib import Path

from tests.data.picture_files import png

__all__ = ["tar_of", "write_tar"]


def tar_of(members, *, form=tarfile.USTAR_FORMAT):
    """The bytes of a tar: names and contents, or whole ``TarInfo`` with contents."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=form) as tar:
        for name, data in members:
            member = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            member.size = len(data) if member.isreg() else member.size
            tar.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return content.getvalue()


def write_tar(path: Path, members, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tar_of(members, **options))
    return path


def captioned(n, first=0):
    """Members of so many images with captions."""
    for i in range(first, first + n):
        yield f"{i:04d}.png", png(i)
        yield f"{i:04d}.json", b'{"captions": ["a dog number %d", "dog %d runs"]}' % (i, i)
