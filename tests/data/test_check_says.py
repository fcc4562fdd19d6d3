"""``sightline data check`` of sets that have something wrong: what it refuses, and what it only says."""

import io
import json

import numpy as np
import pytest
import torch

import sightline as sl
from tests.command import run
from tests.data.picture_files import bomb, png
from tests.data.shard_sets import tar_of


def arrays(**values):
    """The bytes of an npz file."""
    file = io.BytesIO()
    np.savez(file, **values)
    return file.getvalue()


def written(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def images(n, *folders):
    return {f"{folder}/{i}.png": png(i + 31 * k) for k, folder in enumerate(folders) for i in range(n)}


def captions(n):
    rows = "".join(f"{i}.png,a dog number {i}\n" for i in range(n))
    return {f"{i}.png": png(i) for i in range(n)} | {"captions.csv": f"image,caption\n{rows}"}


PIXELS = torch.arange(24 * 2 * 2).reshape(24, 2, 2).to(torch.uint8).numpy()
NAMES = np.array(["owl", "cat", "dog"])
ANIMALS = np.array([0, 1, 2] * 8)


def coded(**labels):
    return {"set.npz": arrays(images=PIXELS, **labels)}


def shards(kind):
    """Two tar files, one with what is wrong in the middle."""
    sound = [
        (f"{i:03d}.{end}", x)
        for i in range(9)
        for end, x in (("png", png(i)), ("txt", f"a dog {i}".encode()))
    ]
    extra = {
        "a key twice": [*sound, *sound[:2]],
        "a file twice": [*sound[:2], sound[1], *sound[2:]],
        "no caption": [*sound, ("010.png", png(10))],
        "no image": [*sound, ("011.txt", b"alone")],
        "an image that can't be read": [*sound, ("012.png", b"none"), ("012.txt", b"a cat")],
        "cut": sound,
    }[kind]
    data = tar_of(extra)
    data = data[: len(data) // 2 + 700] if kind == "cut" else data
    return {"train-000000.tar": data, "val-000000.tar": tar_of([("a.png", png(99)), ("a.txt", b"a cat")])}


REFUSED = {
    "tables with names and without": (
        {"train.tsv": "en\tde\na dog\tein Hund\n", "val.tsv": "a cat\teine Katze\n"},
        ["the first line must hold names in all tables or in none", "en, de in train.tsv", "in val.tsv"],
    ),
    "a class twice": (
        coded(labels=ANIMALS, classes=np.array(["owl", "owl", "dog"])),
        ["each of the classes has a name of its own", "'owl' twice"],
    ),
    "a label that is no class": (
        coded(labels=np.array([*NAMES[ANIMALS][:-1], "cow"]), classes=NAMES),
        ["labels are among owl, cat, dog", "'cow'"],
    ),
    "a label past the classes": (
        coded(labels=ANIMALS + 1, classes=NAMES),
        ["number the classes from 0 to 2"],
    ),
    "half a label": (coded(labels=ANIMALS + 0.5), ["labels are whole numbers or names"]),
    "no classes": (coded(labels=ANIMALS, classes=np.array([], "U3")), ["the array classes in", "is empty"]),
    "captions without a header": (
        {f"{i}.png": png(i) for i in range(9)} | {"captions.csv": "one,two\nthree,four\n"},
        ["a table of captions starts with a line that names its columns"],
    ),
    "captions without a column of captions": (
        captions(9) | {"captions.csv": "image,kind\n" + "".join(f"{i}.png,dog\n" for i in range(9))},
        ["a table of captions starts with a line that names its columns", "'image,kind'"],
    ),
    "nothing": ({}, ["there must be images and captions", "is empty"]),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_be_read_is_refused_in_a_sentence(tmp_path, name):
    files, words = REFUSED[name]
    place = written(tmp_path / "set", files) if files else tmp_path
    place = place / "set.npz" if "set.npz" in files else place
    ended = run("data", "check", place)
    assert (ended.code, ended.out) == (2, "")
    (sentence,) = ended.err.strip().splitlines()
    assert all(word in sentence for word in words), sentence


@pytest.mark.bad_input
def test_shards_end_in_tar_or_parquet(tmp_path):
    written(tmp_path, {f"train-{i:06d}.zip": "" for i in range(2)})
    ended = run("data", "check", tmp_path / "train-{000000..000001}.zip")
    assert ended.code == 2
    assert "shards end in .tar or .parquet" in ended.err


SAID = {
    "an image that is too large": (
        images(6, "owl", "cat") | {"cat/6.png": bomb(100_000)},
        ("broken", "cat/6.png", "pixels"),
    ),
    "an image larger than is allowed": (
        images(6, "owl", "cat") | {"cat/6.png": bomb(8_200)},
        ("broken", "cat/6.png", "67240000"),
    ),
    "an image that can't be read": (
        images(6, "owl", "cat") | {"cat/6.png": "none"},
        ("broken", "cat/6.png", "not an image that can be read"),
    ),
    "an image of no class": (
        images(6, "owl", "cat") | {"7.png": png(77)},
        ("no class", "7.png", "no folder of a class"),
    ),
    "shards, a key twice": (
        shards("a key twice"),
        ("duplicate key", "train-000000.tar/000", "the first example of it"),
    ),
    "shards, a file twice": (
        shards("a file twice"),
        ("duplicate key", "train-000000.tar/000", "the first is taken"),
    ),
    "shards, cut": (shards("cut"), ("cut off", "train-000000.tar", "copy it anew")),
    "shards, no caption": (
        shards("no caption"),
        ("no caption", "train-000000.tar", "1 of 10 examples of 'train-000000.tar' lack a caption"),
    ),
    "shards, a broken image": (
        shards("an image that can't be read"),
        ("broken", "train-000000.tar/9", "not an image that can be read; it is text"),
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_left_out_is_said(tmp_path, name):
    files, (kind, place, words) = SAID[name]
    ended = run("data", "check", written(tmp_path / "set", files), "--json")
    assert ended.code in {0, 1}, ended.err
    problems = [x for x in _objects(ended.json) if {"kind", "name"} <= x.keys()]
    found = [x for x in problems if x["kind"] == kind and place in x["name"]]
    assert len(found) == 1, ended.json
    assert words in json.dumps(found[0])


def _objects(value):
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(inner)


def test_classes_of_unlike_sizes_are_noted(tmp_path):
    files = images(97, "owl") | {f"cat/{i}.png": png(200 + i) for i in range(5)}
    train = run("data", "check", written(tmp_path / "set", files), "--json").json["splits"]["train"]
    (most, least) = (train[name]["images"] for name in ("most", "fewest"))
    out = " ".join(run("data", "check", tmp_path / "set").out.split())
    assert f"uneven: 'owl' has {most} images in train and 'cat' has {least}" in out
    assert "uneven" not in run("data", "check", written(tmp_path / "even", images(9, "owl", "cat"))).out


@pytest.mark.parametrize(
    "labels",
    [
        {"labels": ANIMALS, "classes": NAMES},
        {"labels": NAMES[ANIMALS], "classes": NAMES},
        {"labels": NAMES[ANIMALS].astype("S3"), "classes": NAMES},
        {"labels": ANIMALS.astype(float), "classes": NAMES},
    ],
    ids=["numbers", "names", "bytes", "floats"],
)
def test_labels_are_numbers_or_names(tmp_path, labels):
    """In the order of the classes, not of their letters."""
    path = written(tmp_path, coded(**labels)) / "set.npz"
    out = tmp_path / "run"
    small = {"patch": 1, "d_model": 4, "n_heads": 1, "n_layers": 1, "d_ff": 4, "steps": 1}
    small |= {"image_size": 2, "channels": 1}
    sl.tasks.train("classify", data=path, out=out, shown=False, tensorboard=False, device="cpu", **small)
    found = sl.open_run(out).evaluate("train")
    names = [prediction.references[0] for prediction in found.predictions]
    assert set(names) == set(NAMES)
    pixels = {PIXELS[i].tobytes(): NAMES[i % 3] for i in range(24)}
    data = sl.open_run(out).dataset().split("train")
    assert [pixels[bytes(x.flatten().tolist())] for x in data.images[:]] == names


def test_a_set_in_memory_is_named_by_its_examples():
    def digest(**examples):
        return sl.tasks.MemoryDataset(source="x", examples=examples).digest()

    first = digest(train=["a", "b"], val=["c"], test=["d"])
    assert digest(train=["a", "b"], val=["c"], test=["e", "f"]) == first
    for other in (
        {"train": ["a", "x"], "val": ["c"]},
        {"train": ["a", "b"], "val": ["x"]},
        {"train": ["a"], "val": ["b", "c", "d"]},
    ):
        assert digest(**other) != first
    rows = sl.tasks.MemoryDataset(source="x", examples={"train": torch.ones(2, 3), "val": torch.zeros(1, 3)})
    assert (
        rows.digest()
        == sl.tasks.MemoryDataset(
            source="y", examples={"train": [[1.0] * 3] * 2, "val": [[0.0] * 3]}
        ).digest()
    )


def test_words_are_counted_as_they_are_read(tmp_path):
    """In small letters, with one apostrophe, and letters that are drawn together apart."""
    said = ["Dog\u2019s", "dog's", "DOG'S", "\ufb01sh", "FISH", "\u212b", "\u00e5"]
    rows = "".join(f"{i}.png,{word} {word}\n" for i, word in enumerate(said))
    files = {f"{i}.png": png(i) for i in range(8)} | {"captions.csv": f"image,caption\n{rows}"}
    splits = run("data", "check", written(tmp_path / "set", files), "--json").json["splits"]
    assert splits["train"]["words"] == 3  # of as many captions as say each in other letters
    assert [split["longest"] for split in splits.values()] == [2] * len(splits)


def test_what_notes_a_row_is_no_text_of_it(tmp_path):
    """Keys, addresses and numbers have columns of their own next to the texts."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for split in ("train", "val"):
        columns = {name: [f"{name} {split} {i}" for i in range(7)] for name in ("en", "de")}
        notes = {
            name: [f"{name} {i}" for i in range(7)] for name in ("key", "url", "id", "__key__", "__url__")
        }
        parquet.write_table(arrow.table(columns | notes), tmp_path / f"{split}-000000.parquet")
    ended = run("data", "check", tmp_path, "--source", "en", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["splits"]["train"]["pairs"] == 7
    assert "en to de" in " ".join(run("data", "check", tmp_path, "--source", "en").out.split())
