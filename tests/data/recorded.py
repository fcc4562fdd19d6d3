"""What a reader makes of a folder, in plain values: the splits, the digest, the report of ``data check``."""

import tarfile
import zipfile
from pathlib import Path

from sightline.data.check import check
from sightline.data.readers import kind_of, open_dataset


def recorded(place, kind=None):
    """Every example of each split under its key, how the splits came about, and all that the report says.

    Paths are taken out of the sentences: a folder, a zip and a tar of the same files say the same.
    """
    dataset = open_dataset(place, kind)
    report = without_path(check(dataset).as_json(), str(place))
    return {
        "kind": kind_of(place),
        "layout": dataset.layout,
        "digest": _digest(dataset, str(place)),
        "report": report,
        "rows": {name: list(_rows(dataset, name)) for name in dataset.splits()},
    }


def without_path(value, place):
    """The same values with the place called DATA, whichever way it was packed."""
    if isinstance(value, dict):
        return {name: without_path(inner, place) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_path(inner, place) for inner in value]
    return value.replace(place, "DATA") if isinstance(value, str) else value


def packed_as(folder, form, out):
    """A copy of a folder under ``out``: as it is, as a zip or as a tar."""
    names = sorted(x.relative_to(folder).as_posix() for x in folder.rglob("*") if x.is_file())
    if form == "folder":
        for name in names:
            (out / "data" / name).parent.mkdir(parents=True, exist_ok=True)
            (out / "data" / name).write_bytes((folder / name).read_bytes())
        return out / "data"
    place = out / f"data.{form}"
    if form == "zip":
        with zipfile.ZipFile(place, "w") as file:
            for name in names:
                file.write(folder / name, name)
    else:
        with tarfile.open(place, "w") as file:
            for name in names:
                file.add(folder / name, name)
    return place


def _digest(dataset, place):
    try:
        return dataset.digest()
    except ValueError as problem:
        return without_path(f"{problem}", place)


def _rows(dataset, split):
    part = dataset.split(split)
    for i, example in enumerate(part):
        if hasattr(example, "captions"):
            yield [example.name, *example.captions]
        elif hasattr(part, "labels"):
            named = getattr(part.images, "name", None)
            name = named(i) if callable(named) else part.keys[i]
            yield [name, dataset.names[int(part.labels[i])]]
        else:
            yield list(example)


GOLDEN = Path(__file__).parents[1] / "golden" / "data"
LAYOUTS = sorted(path.parent for path in GOLDEN.glob("*/*/files"))
