"""Small shards, sound and hostile."""

import io
import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sightline.data.readers import open_dataset
from tests.data.picture_files import png

__all__ = ["as_shards", "captioned", "tar_of", "write_tar"]


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


def as_shards(folder, kind, out, form="tar", n=5):
    """The set of a folder as shards of n examples each, in its order and its splits."""
    found = open_dataset(folder, kind)
    out.mkdir()
    for split in found.splits():
        rows = list(_rows(found, split, folder))
        for number, top in enumerate(range(0, len(rows), n)):
            some = rows[top : top + n]
            path = out / f"{split}-{number:06d}.{form}"
            if form == "tar":
                write_tar(path, [member for i, row in enumerate(some) for member in _members(i, row)])
            else:
                pq.write_table(pa.Table.from_pylist(some), path, row_group_size=3)
    if kind == "classify":
        (out / "classes.json").write_text(json.dumps(found.names))
    return out


def _rows(found, split, folder):
    part = found.split(split)
    for i, example in enumerate(part):
        if hasattr(example, "captions"):
            content = found.images.files.read(found.images.paths[example.name])
            yield {"image": {"bytes": content, "path": example.name}, "captions": list(example.captions)}
        elif hasattr(part, "labels"):
            content = (folder / part.keys[i]).read_bytes()
            yield {"image": {"bytes": content, "path": part.keys[i]}, "label": found.names[part.labels[i]]}
        else:
            yield {"translation": {found.source_language: example[0], found.target_language: example[1]}}


def _members(i, row):
    image = row.pop("image", None)
    if image is not None:
        yield f"{i:04d}.{image['path'].rpartition('.')[2]}", image["bytes"]
    yield f"{i:04d}.json", json.dumps(row).encode()
