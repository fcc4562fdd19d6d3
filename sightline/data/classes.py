"""Images with a class each: folders of classes, a zip of them, tables of labels, parquet, or an ``.npz``.

Whatever the files are, grey, with alpha or of another size, bytes ``(N, C, side, side)`` come out; a file
that can't be read is named and left out. ``class_folders.py``, ``image_tables.py`` and ``classes_npz.py`` say
how the data may lie.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from sightline.data.class_folders import ClassFile, ClassFiles, find_class_folders
from sightline.data.class_set import ClassSet, LabelledImages, empty_images, fit_image, hold_out
from sightline.data.classes_npz import read_npz
from sightline.data.dataset import ALL, STATED, Deal, Problem, check_deal, hash_split
from sightline.data.image_tables import ImageTable, is_image_table, read_image_table, table_files
from sightline.data.images import BrokenImage, read_image
from sightline.data.shard_classes import read_class_shards
from sightline.data.shard_files import find_shards, is_there
from sightline.data.sources import Files, Folder, Index, files_of

__all__ = ["read_classes"]


def read_classes(
    source: Path | str,
    *,
    image_size: int | None = None,
    channels: int | None = None,
    seed: int = 0,
    val: float = 0.1,
    test: float = 0.1,
    deal: Deal = "hash",
    strict: bool = True,
) -> ClassSet:
    """Read a set of images with classes; its layout is found out by looking.

    Args:
        source: A folder or a zip with a subfolder for each class, with ``labels.csv``, Hugging Face's
            ``metadata.csv`` or ``metadata.jsonl``, or parquet files; one of these files; an ``.npz``; or
            shards by their folder or a pattern, whose images are decoded as a training goes.
        image_size: Side of the images; others are scaled and their middle is cut out. Default: what they are
            for an ``.npz``, else 64.
        channels: 1 for grey, 3 for colour. Default: what they are for an ``.npz``, else 3.
        seed: Of the split, where the data has none.
        val, test: Shares of each class that are held out, where the data does not say which; where none are,
            the one stands for the other, and the train split for both.
        deal: How they are held out: by a hash of seed and name, or as version 0.1 did.
        strict: Refuse classes of which there are too few images, and a single class. Else they are among the
            ``problems`` of the set, to be looked at.

    Raises:
        ValueError: If there are no classes, too few images of one, or arrays that don't fit.
        FileNotFoundError: If there is no such folder or file.
    """
    source = Path(source)
    check_deal(deal)
    if not is_there(source):
        raise FileNotFoundError(
            f"there is no folder, zip or .npz {str(source)!r}; --data digits needs no files"
        )
    if channels not in (None, 1, 3):
        raise ValueError(f"images have 1 channel, grey, or 3, colour, got channels={channels}")
    if image_size is not None and image_size < 1:
        raise ValueError(f"image_size must be at least 1 pixel, got {image_size}")
    if (shards := find_shards(source)) is not None:
        return read_class_shards(
            shards,
            source=str(source),
            image_size=image_size or 64,
            channels=channels or 3,
            seed=seed,
            val=val,
            test=test,
            strict=strict,
        )
    if source.suffix.lower() == ".npz" and source.is_file():
        found = read_npz(source, image_size, channels)
    else:
        found = _decode(_find(source), image_size or 64, channels or 3)
    return _deal(replace(found, source=str(source)), seed, val, test, deal, strict=strict)


def _find(source: Path) -> ClassFiles:
    """The images and their classes, by a table or by folders."""
    only = source.name if source.is_file() and is_image_table(source.name) else None
    files = Folder(source.parent) if only else files_of(source)
    names = files.names()
    if only is None and table_files(names) is None:
        return find_class_folders(files)
    table = read_image_table(files, names, only)
    assert table is not None  # noqa: S101  there is one
    if not table.has_labels:
        raise ValueError(
            f"there must be classes, {table.file!r} in {files.where!r} has the columns "
            f"{', '.join(table.columns)}; call one label"
        )
    return _labelled(table)


def _labelled(table: ImageTable) -> ClassFiles:
    """The rows of a table that name an image and a class; of the others, the problem."""
    index = Index(table.images.names())
    found: list[ClassFile] = []
    problems: list[Problem] = []
    stated = any(row.split for row in table.rows)
    for i, row in enumerate(table.rows):
        at = index.find(row.image) if row.image else None
        if at is None:
            sentence = f"the image {row.image!r} is not in {table.images.where!r}, or more than once"
            problems.append(Problem("missing", row.image or f"row {i}", sentence))
        elif row.label is None:
            problems.append(Problem("no class", row.image, f"the image {row.image!r} has no class"))
        else:
            found.append(ClassFile(at, row.label, row.split or ("train" if stated else ALL)))
    if not found:
        first = problems[0].sentence if problems else "it has no rows"
        raise ValueError(f"not one image that {table.file!r} names can be used: {first}")
    trained = {file.label for file in found if file.split in {"train", ALL}}
    for file in found:
        if file.label not in trained:
            raise ValueError(
                f"every class must be in train, {file.label!r} of {file.name!r} is in {file.split} only"
            )
    numbers = all(label.isdecimal() for label in trained)
    known = table.classes or sorted(trained, key=lambda label: (int(label), label) if numbers else (0, label))
    classes = tuple(name for name in known if name in trained)
    return ClassFiles(classes, found, table.images, table.layout, tuple(problems))


def _decode(found: ClassFiles, size: int, channels: int) -> ClassSet:
    """Every image, decoded once, by threads."""
    images, broken = _read_all(found.images, [file.name for file in found.files], size, channels)
    labels = torch.tensor([found.classes.index(file.label) for file in found.files], dtype=torch.long)
    everything = LabelledImages(images, labels, tuple(file.name for file in found.files))
    splits = list(dict.fromkeys(file.split for file in found.files)) or [ALL]
    if len(splits) == 1 and not broken:
        parts = {splits[0]: everything}
    else:
        parts = {}
        for split in splits:
            whole = [i for i, file in enumerate(found.files) if file.split == split and i not in broken]
            parts[split] = everything.select(torch.tensor(whole, dtype=torch.long))
    problems = [Problem("broken", found.files[i].name, sentence) for i, sentence in broken.items()]
    return ClassSet(found.classes, parts, (*found.problems, *problems), layout=found.layout)


def _read_all(files: Files, names: Sequence[str], size: int, channels: int) -> tuple[Tensor, dict[int, str]]:
    """The images as bytes, and a sentence for each that could not be read, by its place."""
    images = empty_images(len(names), channels, size, size)
    broken: dict[int, str] = {}

    def decode(i: int) -> None:
        try:
            image = read_image(io.BytesIO(files.read(names[i])), size=size, name=names[i])
            images[i] = fit_image(image, size, channels)
        except BrokenImage as problem:
            broken[i] = str(problem)
        except OSError as problem:
            broken[i] = f"the image {names[i]!r} can't be read: {problem}"

    with ThreadPoolExecutor() as pool:
        list(pool.map(decode, range(len(names))))
    return images, dict(sorted(broken.items()))


def _deal(found: ClassSet, seed: int, val: float, test: float, deal: Deal, *, strict: bool) -> ClassSet:
    """Hold out what the data has not held out itself; where nothing is, another split stands for it."""
    parts = {name: part for name, part in found.parts.items() if len(part) or name in {"train", ALL}}
    whole = ALL in parts
    if whole:
        parts["train"] = parts.pop(ALL)
    shares = {"test": test if whole else 0.0, "val": val}
    held = {split: share for split, share in shares.items() if share and split not in parts}
    too_few = list(_too_few(parts["train"], found, list(held), whole=whole))
    if strict and too_few:
        raise ValueError(too_few[0].sentence)
    rule = STATED
    if held:
        train, split_of = parts["train"], _dealt(parts["train"], held, seed, deal)
        for split in (*held, "train"):
            members = [i for i, other in enumerate(split_of) if other == split]
            parts[split] = train.select(torch.tensor(members, dtype=torch.long))
        listed = " and ".join(f"{share:g} of each class {split}" for split, share in reversed(held.items()))
        by = f"a hash of seed {seed} and the name" if deal == "hash" else f"seed {seed}"
        rule = f"{listed}, by {by}"
    if strict:
        _check_left(parts["train"], found.names, held)
    stand_ins = {}
    for split, others in (("val", ("test", "train")), ("test", ("val",))):
        if split not in parts:
            stand_ins[split] = next(x for x in others if x in parts)
            parts[split] = parts[stand_ins[split]]
    problems = (*found.problems, *too_few)
    return replace(found, parts=parts, problems=problems, stand_ins=stand_ins, rule=rule)


def _from_common_folder(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Names below the folder that all lie in: a set is dealt the same, in a zip or unpacked.

    Example:
        >>> _from_common_folder(("photos/cat/1.jpg", "photos/dog/1.jpg"))
        ('cat/1.jpg', 'dog/1.jpg')
    """
    folders = [key.split("/")[:-1] for key in keys]
    common = 0
    while folders and all(len(x) > common and x[common] == folders[0][common] for x in folders):
        common += 1
    return tuple("/".join(key.split("/")[common:]) for key in keys)


def _dealt(train: LabelledImages, held: Mapping[str, float], seed: int, deal: Deal) -> list[str]:
    """The split of each image."""
    if deal == "hash":
        keys = _from_common_folder(train.keys) or tuple(map(str, range(len(train))))
        strata = dict(zip(keys, map(str, train.labels.tolist()), strict=True))
        dealt = hash_split(
            keys, seed=seed, val=held.get("val", 0.0), test=held.get("test", 0.0), strata=strata
        )
        return [dealt[key] for key in keys]
    splits, left = ["train"] * len(train), torch.arange(len(train))
    for split, share in held.items():
        chosen = hold_out(train.labels[left], share, seed + (split == "val"))
        for i in left[chosen].tolist():
            splits[i] = split
        left = left[~chosen]
    return splits


def _too_few(
    train: LabelledImages, found: ClassSet, held: Sequence[str], *, whole: bool
) -> Iterator[Problem]:
    """A single class, and classes of which there are too few images to learn from and to hold out."""
    if len(found.names) < 2:
        n = len(found.names)
        sentence = f"there must be at least 2 classes to tell apart, {found.source!r} has {n}"
        yield Problem("too few", found.source, sentence)
    least, where = 1 + len(held), "" if whole else " in train"
    uses = {"val": "one to choose by", "test": "one to be tested on"}
    listed = ", ".join(["one to learn from", *(uses[split] for split in reversed(held))])
    n = len(found.problems)
    left_out = f"; {n} files were left out, the first: {found.problems[0].sentence}" if n else ""
    for name, count in zip(found.names, _counted(train, found.names), strict=True):
        if count < least:
            sentence = (
                f"each class needs at least {least} image{'s' * (least > 1)}{where}, {listed}, {name!r} has "
                f"{count}; add images, or take the class away{left_out}"
            )
            yield Problem("too few", name, sentence)


def _check_left(train: LabelledImages, names: Sequence[str], held: Mapping[str, float]) -> None:
    for name, count in zip(names, _counted(train, names), strict=True):
        if not count:
            shares = " and ".join(f"{split}={share:g}" for split, share in held.items())
            raise ValueError(
                f"each class needs at least 1 image to learn from, {name!r} has none left, {shares} took "
                "all; hold out less"
            )


def _counted(part: LabelledImages, names: Sequence[str]) -> list[int]:
    return torch.bincount(part.labels, minlength=len(names)).tolist()
