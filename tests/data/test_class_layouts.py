"""Images with classes in zips, tables and parquet, and how they are dealt."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from sightline.data.class_set import ClassSet, LabelledImages
from sightline.data.classes import read_classes
from sightline.data.dataset import Dataset
from tests.data.caption_sets import as_folder, as_zip
from tests.data.class_sets import LAYOUTS, PICTURES, pixels_of
from tests.data.picture_files import png


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_from_a_folder_and_a_zip(tmp_path, layout, packed):
    files = LAYOUTS[layout]()
    path = as_zip(files, tmp_path / "set.zip") if packed else as_folder(files, tmp_path)
    found = read_classes(path, image_size=8)
    assert found.names == (("dog", "cat") if layout == "parquet" else ("cat", "dog"))
    assert found.problems == ()
    assert found.source == str(path)
    assert found.splits() == {"train": 13, "val": 2, "test": 2}
    assert "by a hash of seed 0 and the name" in found.rule
    expected = {pixels_of(name).numpy().tobytes(): name.partition("/")[0] for name in PICTURES}
    everything = found.split("all")
    assert len(everything) == len(set(everything.keys)) == 17
    for image, label in everything:
        assert expected[image.numpy().tobytes()] == found.names[label]


def test_a_zip_is_dealt_as_its_folder(tmp_path):
    folder = read_classes(as_folder(PICTURES, tmp_path / "folder"), image_size=8)
    packed = read_classes(as_zip(PICTURES, tmp_path / "set.zip"), image_size=8)
    for split in ("train", "val", "test"):
        assert folder.split(split).keys == packed.split(split).keys
        assert torch.equal(folder.split(split).images, packed.split(split).images)
    assert folder.digest() == packed.digest()


def test_new_images_leave_the_others_where_they_are(tmp_path):
    before = read_classes(as_folder(PICTURES, tmp_path), image_size=8)
    as_folder({"dog/10.png": png(7), "dog/11.png": png(8), "dog/aa.png": png(9)}, tmp_path)
    after = read_classes(tmp_path, image_size=8)
    held = set(before.split("test").keys) | set(before.split("val").keys)
    assert not {key for key in held if key.startswith("cat")} & set(after.split("train").keys)


def test_runs_of_version_0_1_find_their_splits_again(tmp_path):
    found = read_classes(as_folder(PICTURES, tmp_path), image_size=8, deal="0.1")
    assert found.split("val").keys == ("cat/01.png", "dog/01.png")
    assert found.split("test").keys == ("cat/04.png", "dog/07.png")
    assert found.digest() == "6812983a1e38"
    assert read_classes(tmp_path, image_size=8).split("val").keys != found.split("val").keys


def test_images_stand_in_the_order_of_their_paths(tmp_path):
    names = ("cat/x-1.png", "cat/x/1.png", "cat/a.png", "dog/1.png")  # a plain sort has - before /
    as_folder({name: png(i) for i, name in enumerate(names)}, tmp_path)
    found = read_classes(tmp_path, image_size=8, val=0.0, test=0.0, strict=False)
    paths = sorted(path for path in tmp_path.rglob("*.png"))
    assert found.split("train").keys == tuple(path.relative_to(tmp_path).as_posix() for path in paths)


def test_stated_splits_of_a_table(tmp_path):
    rows = "file,label,split\n0.png,2,train\n1.png,10,train\n2.png,10,dev\n3.png,2,\n4.png,2,test\n"
    files = {f"{i}.png": png(i) for i in range(5)}
    found = read_classes(as_folder({"labels.csv": rows.encode(), **files}, tmp_path), image_size=8)
    assert found.names == ("2", "10")
    assert {name: part.keys for name, part in found.parts.items()} == {
        "train": ("0.png", "1.png", "3.png"),
        "val": ("2.png",),
        "test": ("4.png",),
    }
    assert found.rule == "stated"


def test_shards_name_their_splits(tmp_path):
    for split, n in (("train", 6), ("validation", 3)):
        table = pa.table({"image": [png(i) for i in range(n)], "label": [f"c{i % 3}" for i in range(n)]})
        pq.write_table(table, tmp_path / f"{split}-00000-of-00001.parquet")
    found = read_classes(tmp_path, image_size=8)
    assert found.splits() == {"train": 6, "val": 3}
    assert found.stand_ins == {"test": "val"}
    assert found.split("test").labels.tolist() == [0, 1, 2]


def test_what_is_left_out_is_told(tmp_path):
    rows = "file,label\n" + "".join(f"{i}.png,{'ab'[i % 2]}\n" for i in range(7)) + "x.png,a\n0.png,\n"
    files = {f"{i}.png": png(i) for i in range(6)} | {"6.png": b"text"}
    found = read_classes(as_folder({"labels.csv": rows.encode(), **files}, tmp_path), image_size=8)
    assert [(problem.kind, problem.name) for problem in found.problems] == [
        ("missing", "x.png"),
        ("no class", "0.png"),
        ("broken", "6.png"),
    ]
    folder = as_folder(PICTURES | {"loose.png": png(1)}, tmp_path / "folder")
    (problem,) = read_classes(folder, image_size=8).problems
    assert (problem.kind, problem.name) == ("no class", "loose.png")


def test_a_damaged_zip_entry_costs_one_image(tmp_path):
    path = as_zip(PICTURES, tmp_path / "set.zip")
    content = bytearray(path.read_bytes())
    at = content.index(b"dog/03.png") + 40
    content[at : at + 9] = b"x" * 9
    path.write_bytes(content)
    found = read_classes(path, image_size=8)
    assert [problem.name for problem in found.problems] == ["dog/03.png"]
    assert len(found.split("all")) == 16


def test_examples_are_a_sequence():
    part = LabelledImages(
        torch.arange(5).to(torch.uint8).view(5, 1, 1, 1), torch.tensor([0, 1, 0, 1, 1]), tuple("abcde")
    )
    assert isinstance(ClassSet(("x", "y"), {"train": part}), Dataset)
    assert [(int(image), label) for image, label in part] == [(0, 0), (1, 1), (2, 0), (3, 1), (4, 1)]
    assert (part[1:3].keys, part[1:3].labels.tolist(), len(part[:9])) == (("b", "c"), [1, 0], 5)


BAD = {
    "captions alone": (
        {"metadata.csv": b"file_name,text\na.png,a dog\n"},
        "has the columns file_name, text; call one label",
    ),
    "nothing there": ({"labels.csv": b"file,label\na.png,cat\n"}, "can be used: the image 'a.png' is not in"),
    "no rows": ({"labels.csv": b"file,label\n"}, "'labels.csv' in '{path}' has no rows"),
    "no file": ({"labels.csv": b"who,label\na.png,cat\n"}, "such as file_name, 'labels.csv' has who, label"),
    "untrained": (
        {"labels.csv": b"file,label,split\na.png,cat,train\nb.png,dog,test\n", "a.png": b"", "b.png": b""},
        "every class must be in train, 'dog' of 'b.png' is in test only",
    ),
    "an empty class": ({"cat/1.png": png(1), "dog/notes.txt": b""}, "'dog' has 0"),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("case", BAD)
def test_sets_that_are_none(tmp_path, case):
    files, words = BAD[case]
    for path in (as_folder(files, tmp_path / "folder"), as_zip(files, tmp_path / "set.zip")):
        with pytest.raises(ValueError, match=r"\S") as refused:
            read_classes(path, val=0.0, test=0.0)
        assert words.format(path=path) in str(refused.value)
        assert "\n" not in str(refused.value)


@pytest.mark.bad_input
def test_an_empty_folder_is_a_class_without_images(tmp_path):
    as_folder(PICTURES, tmp_path)
    (tmp_path / "owl").mkdir()
    with pytest.raises(ValueError, match=r"at least 3 images, .*'owl' has 0"):
        read_classes(tmp_path)


@pytest.mark.bad_input
def test_a_rule_that_is_none(tmp_path):
    with pytest.raises(ValueError, match="unknown deal 'random'"):
        read_classes(tmp_path, deal="random")


def test_rows_of_an_npz_are_dealt_by_their_numbers(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros((11, 4, 4), np.uint8), labels=np.arange(11) % 2)
    found = read_classes(tmp_path / "a.npz")
    assert sorted(found.split("all").keys) == sorted(f"images/{i}" for i in range(11))
    assert found.layout == "npz"
