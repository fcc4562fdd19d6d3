"""Sets in shards: found, read where they lie, and dealt."""

import io
import json
import os
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from sightline.data.captions import read_captions
from sightline.data.check import check
from sightline.data.classes import read_classes
from sightline.data.images import read_image
from sightline.data.pairs import read_pairs
from sightline.data.readers import kind_of
from sightline.data.shard_files import find_shards, is_there
from sightline.data.shards import deal
from tests.data.picture_files import png
from tests.data.shard_sets import captioned, write_tar


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path_factory.mktemp("cache")))


def test_captions_in_tars_are_those_of_the_members(tmp_path):
    write_tar(tmp_path / "train-000000.tar", captioned(3))
    write_tar(tmp_path / "train-000001.tar", captioned(2, first=3))
    write_tar(
        tmp_path / "val-000000.tar", [("a/7.x.png", b""), ("a/7.png", png(7)), ("a/7.txt", b"one\n\ntwo\n")]
    )
    found = read_captions(tmp_path)
    assert (found.splits(), found.layout, found.rule) == ({"train": 5, "val": 1}, "tar shards", "stated")
    train = found.split("train")
    assert [record.captions for record in train] == [(f"a dog number {i}", f"dog {i} runs") for i in range(5)]
    assert train[4].name == "train-000001.tar/1"
    for i, record in enumerate(train):
        assert torch.equal(found.open(record), read_image(io.BytesIO(png(i))))
    assert found.split("val")[0].captions == ("one", "two")
    assert [record.split for record in found.split("all")] == ["train"] * 5 + ["val"]
    assert list(found.lines("val")) == ["one", "two"]


def test_a_pattern_names_shards(tmp_path):
    for name in ("train-000000", "train-000001", "train-000002", "val-000000"):
        write_tar(tmp_path / f"{name}.tar", captioned(2))
    counts = {
        "train-{000000..000001}.tar": {"train": 4},
        "{train,val}-000000.tar": {"train": 2, "val": 2},
        "*-00000[02].tar": {"train": 4, "val": 2},
        "train-000002.tar": {"train": 2},
    }
    for pattern, splits in counts.items():
        assert read_captions(tmp_path / pattern).splits() == splits
        assert is_there(tmp_path / pattern)
    assert not is_there(tmp_path / "x*.tar")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("test-*.tar", "no file is named like"),
        ("train-{000000..000003}.tar", "there is no .*train-000001.tar"),
        ("train-{000003..000001}.tar", "a range of shards goes up"),
        ("train-{0..99999999}.tar", "a range of shards goes up, to at most"),
        ("{0..999}{0..999}{0..999}.tar", "a pattern may name 100,000 shards"),
        ("*.json", "shards end in .tar or .parquet"),
    ],
)
def test_a_pattern_that_is_no_good(tmp_path, pattern, said):
    write_tar(tmp_path / "train-000000.tar", captioned(1))
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises((ValueError, OSError), match=said):
        read_captions(tmp_path / pattern)


def test_a_folder_of_anything_else_is_none(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"")
    assert find_shards(tmp_path) is None
    (tmp_path / "a-000000.parquet").write_bytes(b"")
    assert find_shards(tmp_path) == [tmp_path / "a-000000.parquet"]
    (tmp_path / "all images.tar").write_bytes(b"")  # among other files it may be anything
    assert find_shards(tmp_path) == [tmp_path / "a-000000.parquet"]
    (tmp_path / "00000.tar").write_bytes(b"")
    assert find_shards(tmp_path) == [tmp_path / "00000.tar"]
    for name in ("00000.tar", "a-000000.parquet", "a.parquet"):
        (tmp_path / name).unlink()
    assert find_shards(tmp_path) == [tmp_path / "all images.tar"]


def test_classes_by_number_by_name_and_in_json(tmp_path):
    members = [("1.png", png(1)), ("1.cls", b"1"), ("2.png", png(2)), ("2.json", b'{"label": 0}')]
    write_tar(tmp_path / "train-000000.tar", [*members, ("3.png", png(3)), ("3.cls", b"cow\n")])
    (tmp_path / "classes.json").write_text(json.dumps(["dog", "cat"]))
    found = read_classes(tmp_path, image_size=8, val=0, test=0)
    assert found.names == ("dog", "cat", "cow")
    assert found.split("train").labels.tolist() == [1, 0, 2]
    images = found.split("train").images
    assert images.shape == (3, 3, 8, 8)
    assert torch.equal(images[torch.tensor([2, 0])], torch.stack([images[2], images[0]]))
    assert torch.equal(torch.cat(list(images.split(2))), images[:])
    assert found.stand_ins == {"val": "train", "test": "val"}


def test_pairs_in_tars_and_in_parquet(tmp_path):
    rows = [{"translation": {"en": f"dog {i}", "pt-BR": f"cão {i}"}} for i in range(7)]
    write_tar(
        tmp_path / "tar/train-000000.tar",
        [(f"{i}.json", json.dumps(row).encode()) for i, row in enumerate(rows)],
    )
    (tmp_path / "parquet").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "parquet/train-000000.parquet", row_group_size=3)
    for form in ("tar", "parquet"):
        found = read_pairs(tmp_path / form)
        assert (found.source_language, found.target_language) == ("en", "pt-BR")
        assert [tuple(pair) for pair in found.split("train")] == [(f"dog {i}", f"cão {i}") for i in range(7)]
        assert read_pairs(tmp_path / form, source="pt-BR").target_language == "en"
        assert kind_of(tmp_path / form) == "translate"


def test_examples_without_a_stated_split_are_dealt(tmp_path):
    write_tar(tmp_path / "photos-000000.tar", captioned(20))
    found = read_captions(tmp_path)
    assert found.splits() == {"train": 16, "val": 2, "test": 2}
    assert read_captions(tmp_path, seed=1).split("val")[0].name != found.split("val")[0].name
    strata = np.arange(30) % 3
    parts = deal(np.arange(30), 0, 0.1, 0.1, strata)
    assert all(sorted(strata[part]) == [0, 1, 2] for part in (parts["val"], parts["test"]))
    assert sorted(np.concatenate(list(parts.values()))) == list(range(30))


def test_the_index_is_kept_and_made_anew_for_another_file(tmp_path, monkeypatch):
    path = write_tar(tmp_path / "train-000000.tar", captioned(3))
    digest = read_captions(tmp_path).digest()
    monkeypatch.setattr("sightline.data.shard_readers.index_tar", lambda path: 1 / 0)
    assert read_captions(tmp_path).digest() == digest
    for kept in Path(os.environ["SIGHTLINE_CACHE"]).rglob("*.npz"):
        kept.write_bytes(b"damaged")
    with pytest.raises(ZeroDivisionError):
        read_captions(tmp_path)
    monkeypatch.undo()
    write_tar(path, captioned(3, first=1))
    assert read_captions(tmp_path).digest() != digest


def test_a_shard_that_shrinks_and_a_broken_image_are_told(tmp_path, caplog):
    path = write_tar(
        tmp_path / "train-000000.tar", [("1.png", png(1)), ("1.cls", b"a"), ("2.png", b"no"), ("2.cls", b"b")]
    )
    found = read_classes(tmp_path, image_size=8, val=0, test=0)
    images = found.split("train").images
    assert images[torch.tensor([0, 1])][1].sum() == 0
    assert list(images.broken) == [1]
    assert [record.message for record in caplog.records] == [
        "'train-000000.tar/1' is not an image that can be read; it is text; it is left out"
    ]
    report = check(found)
    assert [problem.name for problem in report.problems] == ["train-000000.tar/1"]
    with path.open("r+b") as file:
        file.truncate(600)
    with pytest.raises(ValueError, match="is shorter than it was"):
        images.open(0)


def test_threads_read_one_parquet_file_at_once(tmp_path):
    rows = [{"image": {"bytes": png(i), "path": "x"}, "caption": f"dog {i}"} for i in range(40)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train-000000.parquet", row_group_size=3)
    found = read_captions(tmp_path)
    split, wrong = found.split("train"), []

    def read(start):
        read = [(split[i].captions, found.images._read(split[i].name)) for i in range(start, 40, 3)]
        wrong.extend(set(read) ^ {((f"dog {i}",), png(i)) for i in range(start, 40, 3)})

    threads = [threading.Thread(target=read, args=(start,)) for start in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
