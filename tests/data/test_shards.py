"""Sets in shards: found, read where they lie, dealt, shuffled through a buffer; and hostile ones."""

import io
import json
import os
import re
import tarfile
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from sightline.data import shard_order
from sightline.data.batches import shuffled_batches
from sightline.data.captions import read_captions
from sightline.data.check import check
from sightline.data.classes import read_classes
from sightline.data.images import read_image
from sightline.data.pair_set import Pair
from sightline.data.pairs import read_pairs
from sightline.data.readers import kind_of
from sightline.data.shard_files import find_shards, is_there
from sightline.data.shard_order import Blocks, blocks_of, streamed_batches, streamed_by_length
from sightline.data.shards import deal
from sightline.data.tar_index import index_tar
from tests.data.picture_files import png
from tests.data.shard_sets import captioned, tar_of, write_tar


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
        assert torch.equal(found.open(record), _decoded(png(i)))
    assert found.split("val")[0].captions == ("one", "two")
    assert train.most_captions == 2
    assert [record.split for record in found.split("all")] == ["train"] * 5 + ["val"]
    assert len(train[1:4]) == 3
    assert train[1:4][0] == train[1]
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
    blocks = blocks_of(found.split("train"))
    assert blocks.starts.tolist() == [0, 3, 6, 7]


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


# The order


def blocks_of_sizes(counts, size):
    return Blocks(np.cumsum([0, *counts]), np.full(len(counts), size, np.int64))


def test_every_example_comes_once_and_few_blocks_are_open_at_a_time(monkeypatch):
    monkeypatch.setattr(shard_order, "BUFFER_BYTES", 300)
    counts = [5, 7, 11, 3, 2, 13, 5]
    blocks = blocks_of_sizes(counts, 100)
    plan = streamed_batches(46, 7, seed=3, epoch=2, blocks=blocks)
    order = [i for batch in plan for i in batch]
    assert sorted(order) == list(range(46))
    assert [len(batch) for batch in plan] == [7] * 6 + [4]
    block = np.repeat(np.arange(7), counts)[order]
    last = {b: max(np.flatnonzero(block == b)) for b in range(7)}
    open_at = [len({b for b in block[: i + 1] if last[b] >= i}) for i in range(46)]
    assert max(open_at) <= 3
    assert order != [i for batch in streamed_batches(46, 7, 3, 3, blocks) for i in batch]
    assert order != [i for batch in streamed_batches(46, 7, 4, 2, blocks) for i in batch]
    assert [list(batch) for batch in plan[2:]] == [list(batch) for batch in plan][2:]
    assert list(plan[3:][0]) == list(plan[3]) == list(plan[-4])


def test_the_order_never_changes_between_versions(monkeypatch):
    monkeypatch.setattr(shard_order, "BUFFER_BYTES", 200)
    plan = streamed_batches(10, 4, seed=0, epoch=1, blocks=blocks_of_sizes([3, 3, 4], 100))
    assert list(plan) == [[0, 5, 4, 2], [3, 1, 6, 7], [9, 8]]


def test_a_set_that_fits_has_the_order_of_a_folder():
    blocks = blocks_of_sizes([5, 6], 100)
    assert streamed_batches(11, 3, 5, 1, blocks) == shuffled_batches(11, 3, 5, 1)


def test_batches_by_length_stay_in_the_buffer(monkeypatch):
    monkeypatch.setattr(shard_order, "BUFFER_BYTES", 200)
    lengths = [(7 * i) % 11 + 1 for i in range(40)]
    blocks = blocks_of_sizes([10] * 4, 100)
    plan = streamed_by_length(lengths, 24, 0, 0, blocks)
    assert sorted(i for batch in plan for i in batch) == list(range(40))
    assert all(max(lengths[i] for i in batch) * len(batch) <= 24 for batch in plan)
    assert all(len({i // 10 for i in batch}) <= 2 for batch in plan)


# Hostile ones


def member(name, kind, size=0, link=""):
    found = tarfile.TarInfo(name)
    found.type, found.size, found.linkname = kind, size, link
    return found


SOUND = [("0001.png", png(1)), ("0001.txt", b"a dog")]
HOSTILE = {
    "a link": (
        [*SOUND, (member("2.png", tarfile.SYMTYPE, link="/etc/passwd"), b"")],
        "'2.png' in .* is a link",
    ),
    "a hard link": (
        [*SOUND, (member("2.png", tarfile.LNKTYPE, link="0001.png"), b"")],
        "'2.png' in .* is a link",
    ),
    "a device": ([*SOUND, (member("2.png", tarfile.CHRTYPE), b"")], "'2.png' in .* is no regular file"),
    "a pipe": ([*SOUND, (member("2.png", tarfile.FIFOTYPE), b"")], "'2.png' in .* is no regular file"),
    "the same name twice": ([*SOUND, *SOUND[1:]], "'0001.txt' is in .* more than once"),
    "a key again": (
        [*SOUND, ("2.png", b""), ("2.txt", b"x"), *SOUND],
        "the key '0001' is in .* more than once",
    ),
    "no caption": ([*SOUND, ("2.png", png(2))], "1 of 2 examples of .* lack a caption"),
    "no image": ([*SOUND, ("2.txt", b"a cat")], "1 of 2 examples of .* lack an image"),
    "a caption without a word": ([*SOUND, ("2.png", png(2)), ("2.txt", b" ...\n")], "lack a caption"),
    "no JSON": ([*SOUND, ("2.png", png(2)), ("2.json", b'{"captions": ')], "'2.json' is not JSON"),
    "deep JSON": ([*SOUND, ("2.png", png(2)), ("2.json", b"[" * 5000)], "nested 100 deep"),
    "a list": ([*SOUND, ("2.png", png(2)), ("2.json", b"[1]")], "the JSON of an example is an object"),
    "no UTF-8": ([*SOUND, ("2.png", png(2)), ("2.txt", b"caf\xe9")], "'2.txt' has the byte 0xe9"),
    "a large text": (
        [*SOUND, ("2.png", png(2)), ("2.txt", b"a" * 1_100_000)],
        "a text in a shard may have 1.0 MB",
    ),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_member_costs_itself_alone(tmp_path, case):
    members, said = HOSTILE[case]
    write_tar(tmp_path / "train-000000.tar", members)
    found = read_captions(tmp_path)
    assert found.split("train")[0].captions == ("a dog",)
    assert torch.equal(found.open(found.split("train")[0]), _decoded(png(1)))
    problem = [one.sentence for one in found.problems]
    assert any(_matches(said, sentence) for sentence in problem), problem


@pytest.mark.bad_input
def test_a_tar_that_is_cut_off_keeps_what_came_before(tmp_path):
    whole = tar_of([*captioned(3)])
    end = len(whole.rstrip(b"\0")) // 512 * 512 + 512  # of the last member
    for at in range(512, end + 1, 256):
        path = tmp_path / "x.tar"
        path.write_bytes(whole[:at])
        index = index_tar(path)
        assert (len(index.rows) == 3) == (at >= end - 1024)  # the last image is there
        assert index.problems[-1][0] == "cut off"
        assert "copy it anew" in index.problems[-1][2]
    path.write_bytes(whole[:2048] + b"?" * 512 + whole[2560:])
    assert index_tar(path).problems[-1][2].startswith("'x.tar' is damaged or cut off after 2 members")


@pytest.mark.bad_input
def test_a_tar_that_is_cut_off_says_so_after_many_other_problems(tmp_path):
    whole = tar_of([*((f"{i}.json", b"{") for i in range(200)), *captioned(1)])
    path = tmp_path / "x.tar"
    path.write_bytes(whole[: len(whole.rstrip(b"\0")) - 512])
    *_, more, last = index_tar(path).problems
    assert more[2] == "180 more members of 'x.tar' can't be used"
    assert last[0] == "cut off"


@pytest.mark.bad_input
def test_a_sparse_member_costs_itself_alone(tmp_path):
    """Its size is that of the file it was made from, which a small tar need not have."""
    hole = member("0001.bin", tarfile.REGTYPE)
    hole.pax_headers = {"GNU.sparse.size": str(1 << 30), "GNU.sparse.numblocks": "0", "GNU.sparse.map": "0,0"}
    path = write_tar(tmp_path / "x.tar", [*SOUND, (hole, b""), *captioned(2, 2)], form=tarfile.PAX_FORMAT)
    index = index_tar(path)
    assert len(index.rows) == 3
    assert [problem[2] for problem in index.problems] == [
        "a shard holds regular files, '0001.bin' in 'x.tar' is no regular file"
    ]


@pytest.mark.bad_input
def test_sizes_that_lie_are_believed_by_nobody(tmp_path):
    path = tmp_path / "train-000000.tar"
    huge = member("2.png", tarfile.REGTYPE, size=2 << 40)
    content = tar_of(SOUND)[: 4 * 512] + huge.tobuf(tarfile.GNU_FORMAT) + b"x" * 1024
    path.write_bytes(content)
    assert "cut off in '2.png'" in index_tar(path).problems[0][2]
    notes = member("././@PaxHeader", tarfile.XHDTYPE, size=1 << 33)
    with path.open("wb") as file:  # a sparse file that really has so many bytes
        file.write(tar_of(SOUND)[: 4 * 512] + notes.tobuf(tarfile.GNU_FORMAT))
        file.truncate(1 << 33)
    tracemalloc.start()
    index = index_tar(path)
    assert tracemalloc.get_traced_memory()[1] < 50 << 20
    tracemalloc.stop()
    assert len(index.rows) == 1
    assert "a header has 8.6 GB" in index.problems[0][2]
    with path.open("wb") as file:
        file.write(tar_of([])[:0] + member("1.png", tarfile.REGTYPE, size=3 << 30).tobuf(tarfile.GNU_FORMAT))
        file.truncate(4 << 30)
    assert "a file in a shard may have 1.1 GB" in index_tar(path).problems[0][2]


@pytest.mark.bad_input
def test_what_is_no_tar_is_a_sentence(tmp_path):
    path = tmp_path / "train-000000.tar"
    for content, said in ((b"", "is empty, and no tar"), (b"PK" * 600, "is not a tar or is damaged")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=said):
            read_captions(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="is a pipe"):
        read_captions(tmp_path)


@pytest.mark.bad_input
def test_problems_are_bounded(tmp_path):
    path = write_tar(tmp_path / "x.tar", [(f"{i}.json", b"{") for i in range(200)])
    problems = index_tar(path).problems
    assert len(problems) == 21
    assert problems[-1][2] == "180 more members of 'x.tar' can't be used"


@pytest.mark.bad_input
def test_shards_of_another_kind_are_refused(tmp_path):
    write_tar(tmp_path / "train-000000.tar", captioned(2))
    with pytest.raises(ValueError, match=r"must have an image and a class, not one of .* has") as said:
        read_classes(tmp_path)
    assert "lack a class" in str(said.value)
    with pytest.raises(ValueError, match="pair of texts"):
        read_pairs(tmp_path)
    pq.write_table(pa.table({"x": [1]}), tmp_path / "train-000001.parquet")
    with pytest.raises(ValueError, match="all tar or all parquet"):
        read_captions(tmp_path / "*")


@pytest.mark.bad_input
def test_a_pair_without_a_side_is_refused_or_told(tmp_path):
    rows = [b'{"en": "dog", "de": "Hund"}', b'{"en": "cat", "de": ""}', b'{"en": "cow", "fr": "vache"}']
    write_tar(tmp_path / "train-000000.tar", [(f"{i}.json", row) for i, row in enumerate(rows)])
    with pytest.raises(ValueError, match=r"'train-000000.tar/1' has no de"):
        list(read_pairs(tmp_path).split("train"))
    found = read_pairs(tmp_path, strict=False)
    assert len(found.split("train")) == 1
    assert [problem.name for problem in found.problems] == ["train-000000.tar/1", "train-000000.tar/2"]


@pytest.mark.bad_input
def test_a_pair_whose_text_is_in_the_way_is_told(tmp_path):
    """Of a .txt and a .json the .txt is what is read: there is no pair in it."""
    rows = [("0.json", b'{"en": "dog", "de": "Hund"}'), ("1.json", b'{"en": "cat", "de": "Katze"}')]
    write_tar(tmp_path / "train-000000.tar", [*rows, ("1.txt", b"a cat")])
    found = read_pairs(tmp_path)
    assert list(found.split("train")) == [Pair("dog", "Hund")]
    assert [one.sentence for one in found.problems] == [
        "1 of 2 examples of 'train-000000.tar' lack a pair of texts"
    ]


@pytest.mark.bad_input
def test_a_group_of_rows_that_is_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr("sightline.data.shard_readers.BUFFER_BYTES", 1000)
    rows = [{"image": {"bytes": png(i), "path": "x"}, "text": "a dog"} for i in range(20)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train-000000.parquet")
    with pytest.raises(ValueError, match="write it again with fewer rows a group"):
        read_captions(tmp_path)


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
        read = [(split[i].captions, found.images.read(split[i].name)) for i in range(start, 40, 3)]
        wrong.extend(set(read) ^ {((f"dog {i}",), png(i)) for i in range(start, 40, 3)})

    threads = [threading.Thread(target=read, args=(start,)) for start in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def _decoded(content):

    return read_image(io.BytesIO(content))


def _matches(pattern, text):

    return re.search(pattern, text) is not None
