"""Which images of a folder or zip belong to which class: one subfolder for each, perhaps under each split.

animals/cat/1.jpg  animals/cat/2.png  animals/dog/1.jpg          dealt to splits, or
animals/train/cat/1.jpg ...  animals/test/cat/9.jpg              split as you say
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sightline.data.dataset import ALL, SPLITS, Problem, split_name
from sightline.data.images import IMAGE_SUFFIXES
from sightline.data.sources import Files, Folder

__all__ = ["ClassFile", "ClassFiles", "find_class_folders", "is_image"]


@dataclass(frozen=True, slots=True)
class ClassFile:
    """An image and its class.

    Attributes:
        name: The file, as ``images`` of the set names it.
        label: The name of its class.
        split: Its split; ``all`` where none is stated.
    """

    name: str
    label: str
    split: str


@dataclass(frozen=True)
class ClassFiles:
    """The images of a set and their classes, before they are read.

    Attributes:
        classes: The names of the classes, in their order.
        files: The images.
        images: Where they are.
        layout: Which of the formats it is.
        problems: What has no class, or is not there.
    """

    classes: tuple[str, ...]
    files: list[ClassFile]
    images: Files
    layout: str
    problems: tuple[Problem, ...] = ()


def is_image(name: str) -> bool:
    """Whether a file is an image, by its ending."""
    return f".{name.rpartition('.')[2].lower()}" in IMAGE_SUFFIXES


def find_class_folders(files: Files) -> ClassFiles:
    """The images of a folder or zip with a subfolder for each class.

    Raises:
        ValueError: If there are no subfolders, or splits beside something else.
    """
    names = files.names()
    top = _top(names)
    below = _subfolders(files, names, top)
    splits = {split_name(name): name for name in below if split_name(name) in SPLITS}
    strange = [name for name in below if name not in splits.values()]
    # A class may be called train, but then no folders lie in it.
    if strange and any(set(_by_folder(names, f"{top}{name}/")) - {""} for name in splits.values()):
        raise ValueError(
            f"a folder of splits holds {', '.join(SPLITS[:-1])} and {SPLITS[-1]}, each once, {files.where!r} "
            f"has {strange[0]!r} too; move it away"
        )
    stated = bool(splits) and not strange
    if stated and "train" not in splits:
        raise ValueError(f"{files.where!r} has splits, {', '.join(splits)}, but no train among them")
    places = {split: f"{top}{name}/" for split, name in splits.items()} if stated else {ALL: top}
    classes = tuple(_subfolders(files, names, places.get("train", top)))
    found: list[ClassFile] = []
    problems: list[Problem] = []
    for split, place in places.items():
        inside = _by_folder(names, place)
        for child in _subfolders(files, names, place):
            if child not in classes:
                raise ValueError(
                    f"every class must be in train, {child!r} is in {place.rstrip('/')!r} only; "
                    f"train has {', '.join(classes)}"
                )
            images = sorted(filter(is_image, inside.get(child, [])), key=lambda name: name.split("/"))
            found += [ClassFile(name, child, split) for name in images]
        problems += [
            Problem("no class", name, f"the image {name!r} lies in no folder of a class")
            for name in filter(is_image, inside.get("", []))
        ]
    return ClassFiles(classes, found, files, "class folders", tuple(problems))


def _top(names: Sequence[str]) -> str:
    """Where the classes begin: a zip often holds one folder that holds them all."""
    top = ""
    while True:
        inside = _by_folder(names, top)
        folders = [name for name in inside if name]
        if len(folders) != 1 or any(map(is_image, inside.get("", []))) or split_name(folders[0]) in SPLITS:
            return top
        deeper = f"{top}{folders[0]}/"
        if any(map(is_image, _by_folder(names, deeper).get("", []))):  # a class, and the only one
            return top
        top = deeper


def _by_folder(names: Iterable[str], place: str) -> dict[str, list[str]]:
    """The files of a place by the folder in it that they lie in, however deep; "" for the place itself."""
    found: dict[str, list[str]] = {}
    for name in names:
        if name.startswith(place):
            folder, inner, _ = name.removeprefix(place).partition("/")
            found.setdefault(folder if inner else "", []).append(name)
    return found


def _subfolders(files: Files, names: Sequence[str], place: str) -> list[str]:
    """The folders in a place; in a real folder also those that are empty, which are refused later by name."""
    found = set(_by_folder(names, place)) - {""}
    if isinstance(files, Folder):
        found |= {x.name for x in (files.path / place).iterdir() if x.is_dir() and not x.name.startswith(".")}
    if not found:
        inside = sum(name.startswith(place) for name in names)
        raise ValueError(
            f"a set of classes is a folder or a zip with one subfolder for each class, {files.where!r} has "
            f"no subfolders and {inside} files; sort the images into subfolders named like their classes, or "
            "write labels.csv with the columns file,label"
        )
    return sorted(found)
