"""Hugging Face's imagefolder and parquet, read as captions."""

import builtins
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from sightline.data.captions import read_captions
from sightline.data.images import BrokenImage, read_image
from tests.data.caption_sets import CAPTIONS, SPLITS, as_folder, as_zip, images
from tests.data.image_table_sets import LAYOUTS, NAMES, jsonl, parquet_bytes, parquet_structs
from tests.data.picture_files import png


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_from_a_folder_and_a_zip(tmp_path, layout, packed):
    files = LAYOUTS[layout]()
    path = as_zip(files, tmp_path / "set.zip") if packed else as_folder(files, tmp_path)
    captions = read_captions(path)
    assert captions.problems == ()
    assert captions.rule == "stated"
    assert captions.layout == ("parquet" if "parquet" in layout else "imagefolder")
    by_split = {record.split: record for record in captions.records}
    for i, name in enumerate(NAMES):
        record = by_split[SPLITS[name]]
        assert list(record.captions) == CAPTIONS[name]
        assert torch.equal(captions.open(record), read_image(io.BytesIO(png(i))))


def test_a_parquet_file_may_be_named_itself(tmp_path):
    as_folder(parquet_structs(), tmp_path)
    captions = read_captions(tmp_path / "data" / "validation-00000-of-00001.parquet")
    assert captions.splits() == {"val": 1}


def test_shards_and_groups_of_rows_are_one_set(tmp_path, monkeypatch):
    monkeypatch.setattr("sightline.data.parquet._IN_MEMORY", 1)  # one group at a time
    for shard in range(2):
        rows = [{"bytes": png(10 * shard + i), "path": f"{i}.png"} for i in range(5)]
        table = pa.table({"image": rows, "text": [f"dog {10 * shard + i}" for i in range(5)]})
        pq.write_table(table, tmp_path / f"train-0000{shard}-of-00002.parquet", row_group_size=2)
    captions = read_captions(tmp_path)
    assert captions.splits() == {"train": 10}
    for record in reversed(captions.records):
        number = int(record.captions[0].split()[1])
        assert torch.equal(captions.open(record), read_image(io.BytesIO(png(number))))


def test_without_a_split_the_images_are_dealt(tmp_path):
    rows = [{"bytes": png(i), "path": None} for i in range(11)]
    pq.write_table(pa.table({"image": rows, "text": ["a dog"] * 11}), tmp_path / "photos.parquet")
    assert read_captions(tmp_path).splits() == {"train": 9, "val": 1, "test": 1}


def test_what_is_not_there_costs_its_own_row(tmp_path):
    rows = [
        {"bytes": png(1), "path": None},
        None,
        {"bytes": b"text", "path": None},
        {"bytes": None, "path": "x.png"},
    ]
    table = pa.table({"image": rows, "text": ["a dog", "a cat", "a cow", "a hen"]})
    pq.write_table(table, tmp_path / "train.parquet")
    captions = read_captions(tmp_path)
    assert captions.open(captions.records[0]).shape == (3, 11, 13)
    for record, words in zip(
        captions.records[1:],
        ("row 1 of 'train.parquet' holds no image", "it is text", "'x.png' of row 3 is not in"),
        strict=True,
    ):
        with pytest.raises(BrokenImage, match=words):
            captions.open(record)


def test_rows_that_say_nothing_are_problems(tmp_path):
    rows = [
        {"file_name": "a.png", "text": "a dog"},
        {"file_name": "b.png", "text": None},
        {"file_name": "gone.png", "text": "a cat"},
        {"file_name": None, "text": "a cow"},
        {"file_name": "../out.png", "text": ["a", {"raw": "b"}, 7]},
    ]
    captions = read_captions(as_folder({"set/metadata.jsonl": jsonl(rows), **images("set")}, tmp_path))
    assert [record.name for record in captions.records] == ["set/a.png"]
    assert sorted(problem.kind for problem in captions.problems) == [
        "missing",
        "missing",
        "no caption",
        "no name",
    ]


BAD = {
    "labels alone": (
        {"metadata.csv": b"file_name,label\na.png,cat\n"},
        "has the columns file_name, label; call one text",
    ),
    "no image": (
        {"metadata.csv": b"text\na dog\n"},
        "a column that names them, such as file_name, 'metadata.csv' has text",
    ),
    "empty": ({"metadata.csv": b""}, "there must be images, 'metadata.csv' in"),
    "a list": (
        {"metadata.jsonl": b"[1]\n"},
        "'metadata.jsonl' must hold objects such as {...}, got 1 in place 1",
    ),
    "cut off": (
        {"metadata.jsonl": b'{"file_name": "a.png"}\n{"file'},
        "line 2 of 'metadata.jsonl' is not JSON",
    ),
    "deep": ({"metadata.jsonl": b"[" * 100_000}, "line 1 of 'metadata.jsonl' is deeper"),
    "wide": (
        {"metadata.csv": b"file_name,text\na.png,a,b\n"},
        "has 2 columns and 3 cells in row 2; put texts with ','",
    ),
    "no parquet": ({"train.parquet": b"PAR1 no"}, "can't be read as parquet"),
    "texts alone": ({"train.parquet": parquet_bytes(pa.table({"text": ["a"]}))}, "'train.parquet' has text"),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", BAD)
def test_tables_that_are_none(tmp_path, case, packed):
    files, words = BAD[case]
    path = as_zip(files, tmp_path / "set.zip") if packed else as_folder(files, tmp_path)
    with pytest.raises(ValueError, match=r"\S") as refused:
        read_captions(path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.bad_input
def test_a_missing_package_is_one_sentence_with_its_remedy(tmp_path, monkeypatch):
    as_folder(parquet_structs(), tmp_path)
    real = builtins.__import__

    def without(name, *args, **options):
        if name.startswith("pyarrow"):
            raise ImportError(name=name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        ImportError, match=r"pyarrow, which is not installed; pip install 'sightline\[parquet\]'"
    ):
        read_captions(tmp_path)
