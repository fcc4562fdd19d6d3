"""Sets of captions that are none, each refused in one sentence."""

import pytest

from sightline.data.captions import read_captions
from tests.data.caption_sets import as_folder, as_zip, images, karpathy

BAD = {
    "empty": ({}, "there must be images and captions, '{path}' is empty"),
    "only images": (images("x"), "there must be captions, '{path}' has 3 files and none is a dataset*.json"),
    "no captions": (
        {"dataset.json": b'{"images": [{"filename": "a.png"}]}'},
        "'dataset.json' holds ['images']",
    ),
    "other json": ({"dataset.json": b"[1, 2]"}, "'dataset.json' holds a list"),
    "empty sentences": (
        {"dataset.json": b'{"images": [{"filename": "a.png", "sentences": []}]}'},
        "there must be captions, 'dataset.json' in '{path}' holds none",
    ),
    "boxes": (
        {"captions_val.json": b'{"images": [{"id": 1, "file_name": "a"}], "annotations": [{"image_id": 1}]}'},
        "there must be captions, 'captions_val.json' in '{path}' holds none",
    ),
    "cut off": ({"dataset.json": b'{"images": [{"filen'}, "'dataset.json' is not JSON: "),
    "deep": ({"dataset.json": b"[" * 100_000}, "JSON may be nested 100 deep, 'dataset.json' is deeper"),
    "latin-1": (
        {"captions.csv": "image,caption\na.png,a dog\nb.png,café\n".encode("latin-1")},
        "'captions.csv' has the byte 0xe9 on line 3; if it is Latin-1, convert it: iconv -f latin1 -t utf-8",
    ),
    "two": (
        {"dataset_a.json": b"{}", "dataset_b.json": b"{}"},
        "'{path}' holds 'dataset_a.json', 'dataset_b.json'; name the one you mean",
    ),
    "no columns": ({"captions.csv": b"what,who\n1,2\n"}, "'captions.csv' starts with 'what,who'"),
    "no lines": ({"captions.txt": b""}, "'captions.txt' starts with ''"),
    "huge cell": (
        {"captions.csv": b"image,caption\na.png," + b"x" * 200_000},
        "'captions.csv' can't be read as a table: field larger",
    ),
    "open quote": (
        {"captions.csv": b'image,caption\na.png,"a dog\nb.png,a cat\n'},
        "'captions.csv' can't be read as a table: unexpected end of data on line 3; are its quotes closed?",
    ),
    "quote that swallows": (
        {"captions.csv": b'image,caption\na.png,"a dog\nb.png,"a cat, red"\n'},
        "'captions.csv' can't be read as a table: ',' expected after '\"' on line 3; are its quotes closed?",
    ),
    "too many cells": (
        {"captions.csv": b"image,caption_1,caption_2,split\na.png,a,b,c,d,train\n"},
        "'captions.csv' has 4 columns and a row of 6: 'a.png,a,b,c,d,train'; put captions with ',' in them",
    ),
    "punctuation": (
        {"captions.csv": b"image,caption\na.png,...\n"},
        "'captions.csv' names can be used: the image 'a.png' has no caption with a word in it",
    ),
    "no images": (
        {"captions.csv": b"image,caption\na.png,a dog\nb.png,a cat\n"},
        "none of the 2 images that 'captions.csv' names is in '{path}', the first is 'a.png'",
    ),
}  # fmt: skip


@pytest.mark.bad_input
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", BAD)
def test_sets_that_are_none(tmp_path, case, packed):
    files, words = BAD[case]
    path = as_zip(files, tmp_path / "set.zip") if packed else as_folder(files, tmp_path)
    with pytest.raises(ValueError, match=r"\S") as refused:
        read_captions(path)
    assert words.format(path=path) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.bad_input
def test_paths_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder and no zip '.*nowhere'"):
        read_captions(tmp_path / "nowhere")
    (tmp_path / "set.zip").write_bytes(as_zip(karpathy(), tmp_path / "whole.zip").read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"set\.zip' is not a zip or is damaged"):
        read_captions(tmp_path / "set.zip")
    (tmp_path / "model.bin").write_bytes(b"weights")
    with pytest.raises(ValueError, match=r"must be a folder or a zip, '.*model\.bin' is neither"):
        read_captions(str(tmp_path / "model.bin"))


@pytest.mark.bad_input
def test_a_split_that_is_none(tmp_path):
    captions = read_captions(as_folder(karpathy(), tmp_path))
    with pytest.raises(ValueError, match=r"no split 'tset' in .* 'train' \(1\), .*take --split test"):
        captions.split("tset")


@pytest.mark.bad_input
def test_a_file_that_promises_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr("sightline.data.sources.MOST_BYTES", 100)
    path = as_zip({"captions.csv": b"image,caption\n" + b"a.png,a dog\n" * 99}, tmp_path / "set.zip")
    with pytest.raises(OSError, match=r"a file in a zip may have 100 bytes, 'captions\.csv' in .* has 1202"):
        read_captions(path)
