"""Data without examples, and arrays without pixels: one sentence from each command that reads it."""

import io
import re
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.command import run

HERE = Path(__file__).parents[1] / "fixtures/written_by_0_1"
SMALL = [
    "--d-model",
    "6",
    "--n-heads",
    "2",
    "--n-layers",
    "1",
    "--d-ff",
    "5",
    "--steps",
    "1",
    "--device",
    "cpu",
]
PATCH = [*SMALL, "--patch", "1", "--no-tensorboard"]

pytestmark = [pytest.mark.plain, pytest.mark.bad_input]


def bytes_of(*shape):
    return np.zeros(shape, np.uint8)


def labels_of(n):
    return np.arange(n) % 2


def without_images(*shape):
    return {"images": bytes_of(*shape), "labels": labels_of(shape[0])}


NPZ = {
    "no images": (without_images(0, 8, 8), "there must be images to learn from, images in .* has none"),
    "no images, other sides": (without_images(0, 7, 11), "there must be images to learn from"),
    "no images, in colour": (without_images(0, 3, 8, 8), "there must be images to learn from"),
    "no images, floats": (
        {"images": np.zeros((0, 8, 8), np.float32), "labels": labels_of(0)},
        "there must be images to learn from",
    ),
    "no images, two classes": (
        without_images(0, 8, 8) | {"classes": np.array(["a", "b"])},
        "there must be images to learn from",
    ),
    "nothing at all": (without_images(0), "there must be images to learn from"),
    "no train": (
        {
            "x_train": bytes_of(0, 8, 8),
            "y_train": labels_of(0),
            "x_test": bytes_of(5, 8, 8),
            "y_test": labels_of(5),
        },
        "there must be images to learn from, x_train in .* has none",
    ),
    "no rows": (without_images(23, 0, 8), r"images are \(N, h, w\).*, got \(23, 0, 8\)"),
    "no columns": (without_images(23, 8, 0), r"images are \(N, h, w\).*, got \(23, 8, 0\)"),
    "no channels": (without_images(23, 8, 8, 0), r"images are \(N, h, w\).*, got \(23, 8, 8, 0\)"),
    "no pixels": (without_images(23, 3, 0, 0), r"images are \(N, h, w\).*, got \(23, 3, 0, 0\)"),
    "no labels": (
        {"images": bytes_of(23, 8, 8), "labels": labels_of(0)},
        "one label for each image, got 23 images",
    ),
    "labels alone": ({"images": bytes_of(0, 8, 8), "labels": labels_of(23)}, "got 0 images and 23 labels"),
    "no classes": (
        without_images(23, 8, 8) | {"classes": np.array([], dtype=str)},
        "there must be classes, the array classes in .* is empty",
    ),
}


def commands(place, out, kind):
    yield ["data", "check", place]
    yield ["data", "check", place, "--json", "--task", kind]
    yield ["train", kind, "--data", place, "--out", out, *SMALL]
    yield ["evaluate", HERE / kind / "finished", "--data", place]


def sentence_of(words):
    """The one sentence of a command that refuses."""
    result = run(*words)
    assert (result.code, result.out) == (2, ""), (words, result)
    (sentence,) = result.err.strip().splitlines()
    return sentence


@pytest.mark.parametrize("name", NPZ)
def test_an_npz_without_examples(name, tmp_path):
    arrays, words = NPZ[name]
    np.savez(tmp_path / "set.npz", **arrays)
    for command in commands(tmp_path / "set.npz", tmp_path / "out", "classify"):
        assert re.search(words, sentence_of(command)), command
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_split_without_images_is_as_one_that_is_not_there(split, tmp_path):
    trained = {"x_train": bytes_of(23, 8, 8), "y_train": labels_of(23)}
    np.savez(tmp_path / "lacking.npz", **trained)
    np.savez(
        tmp_path / "empty.npz", **trained, **{f"x_{split}": bytes_of(0, 8, 8), f"y_{split}": labels_of(0)}
    )
    tables = []
    for name in ("lacking", "empty"):
        result = run("data", "check", tmp_path / f"{name}.npz", "--json")
        assert result.code == 0, result.err
        tables.append(result.json["splits"])
        result = run(
            "train", "classify", "--data", tmp_path / f"{name}.npz", "--out", tmp_path / name, *PATCH
        )
        assert result.code == 0, result.err
    assert tables[0] == tables[1]


def parquet(folder, **columns):
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    image = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    types = {"image": image, "label": pyarrow.int64()}
    arrays = {
        name: pyarrow.array(values, types.get(name, pyarrow.string())) for name, values in columns.items()
    }
    pyarrow.parquet.write_table(pyarrow.table(arrays), folder / "train-00000-of-00001.parquet")


@pytest.mark.parametrize("kind", ["caption", "classify", "translate"])
def test_parquet_without_rows(kind, tmp_path):
    said = {"caption": ["image", "text"], "classify": ["image", "label"], "translate": ["en", "de"]}[kind]
    parquet(tmp_path, **{name: [] for name in said})
    words = "is empty; it must hold a pair" if kind == "translate" else "there must be images, .* has no rows"
    for place in (tmp_path, tmp_path / "train-00000-of-00001.parquet"):
        for command in commands(place, tmp_path.parent / "out", kind):
            assert re.search(words, sentence_of(command)), command


FILES = {
    "nothing": {},
    "folders": {"cat/": b"", "dog/": b""},
    "no captions": {"captions.csv": b""},
    "captions without rows": {"captions.csv": b"image,caption\n"},
    "no labels": {"labels.csv": b""},
    "labels without rows": {"labels.csv": b"file,label\n"},
    "metadata without rows": {"metadata.csv": b"file_name,text\n"},
    "an empty list": {"train.json": b"[]", "val.json": b"[]"},
    "empty texts": {"train.en": b"", "train.de": b"", "val.en": b"", "val.de": b""},
    "empty tables": {"train.tsv": b"", "val.tsv": b"\n\n"},
    "Karpathy without images": {"dataset.json": b'{"images": []}'},
    "COCO without images": {"captions_train2017.json": b'{"images": [], "annotations": []}'},
}


@pytest.mark.parametrize("kind", ["caption", "classify", "translate"])
@pytest.mark.parametrize("name", FILES)
def test_folders_and_zips_without_examples(name, kind, tmp_path):
    (tmp_path / "set").mkdir()
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as packed:
        for file, content in FILES[name].items():
            if file.endswith("/"):
                (tmp_path / "set" / file).mkdir()
            else:
                (tmp_path / "set" / file).write_bytes(content)
            packed.writestr(file, content)
    for place in (tmp_path / "set", tmp_path / "set.zip"):
        for command in commands(place, tmp_path / "out", kind):
            if command[0] == "data":  # where the data looks like another kind, or lists its problems
                result = run(*command)
                assert result.code == 0 or len(result.err.strip().splitlines()) == 1, (command, result)
            else:
                assert sentence_of(command)
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        ("caption", {}),
        ("classify", {}),
        ("translate", {}),
        ("caption", {"0.png": b"", "0.txt": b""}),
        ("classify", {"0.png": b""}),
        ("translate", {"0.json": b"{}"}),
    ],
)
def test_tar_shards_without_examples(kind, members, tmp_path, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    tar(tmp_path / "set" / "train-000000.tar", members)
    for command in commands(tmp_path / "set", tmp_path / "out", kind):
        assert sentence_of(command).startswith("examples must have")


def test_shards_whose_images_are_all_empty(tmp_path, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    files = {f"{i}.png": b"" for i in range(23)} | {f"{i}.cls": str(i % 2).encode() for i in range(23)}
    tar(tmp_path / "set" / "train-000000.tar", dict(sorted(files.items())))
    result = run("train", "classify", "--data", tmp_path / "set", "--out", tmp_path / "out", *PATCH)
    assert result.code == 2
    assert result.err.splitlines()[-1] == f"not one of 2 images of '{tmp_path / 'set'}' could be read"


def tar(path, members):
    with tarfile.open(path, "w") as packed:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
