"""Members, tars and rows that somebody else has made, and none that costs more than itself."""

import io
import json
import os
import re
import tarfile
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from sightline.data.captions import read_captions
from sightline.data.classes import read_classes
from sightline.data.images import read_image
from sightline.data.pair_set import Pair
from sightline.data.pairs import read_pairs
from sightline.data.tar_index import index_tar
from tests.data.picture_files import png
from tests.data.shard_sets import captioned, tar_of, write_tar


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path_factory.mktemp("cache")))


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
    assert torch.equal(found.open(found.split("train")[0]), read_image(io.BytesIO(png(1))))
    problem = [one.sentence for one in found.problems]
    assert any(re.search(said, sentence) for sentence in problem), problem


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
        read_pairs(tmp_path)
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


@pytest.mark.bad_input
@pytest.mark.parametrize("form", ["tar", "parquet"])
def test_texts_that_fit_no_memory_are_refused_before_they_are_read(tmp_path, monkeypatch, form):
    row = {"en": "dog " * 999, "de": "Hund " * 999}
    if form == "tar":
        write_tar(tmp_path / "train-000000.tar", [("1.json", json.dumps(row).encode())])
    else:
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / "train-000000.parquet", compression="zstd")
    assert len(read_pairs(tmp_path).split("train")) == 1
    monkeypatch.setattr("sightline.untrusted.free_memory", lambda: 35_000)
    with pytest.raises(ValueError, match=r"reading the texts of .* needs [36]\d+ bytes of memory"):
        read_pairs(tmp_path)
