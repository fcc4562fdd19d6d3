"""Splits: from lists beside the captions, and what is said where one is missing."""

import pytest

from sightline.data.captions import CaptionSet, read_captions
from sightline.data.scenes import scenes_set
from tests.data.caption_sets import as_folder, coco, flickr_tokens, table
from tests.data.picture_files import png

LIST = "text/Flickr_8k.{}Images.txt"


def listed(**lists):
    """The Flickr set with some of its lists written anew."""
    return flickr_tokens() | {LIST.format(name): text.encode() for name, text in lists.items()}


def test_a_list_may_leave_out_how_names_end(tmp_path):
    files = listed(train="a\n", dev=" b \n\n", test="c")
    captions = read_captions(as_folder(files, tmp_path))
    assert captions.rule == "stated"
    assert {record.name: record.split for record in captions.records} == {
        "a.png": "train",
        "b.png": "val",
        "c.png": "test",
    }


def test_a_whole_name_goes_before_its_beginning(tmp_path):
    files = listed(train="a.png\na.b", dev="", test="c.png")
    files["text/Flickr8k.token.txt"] += b"\na.b.png#0\ta cat"
    captions = read_captions(as_folder(files | {"Flicker8k_Dataset/a.b.png": png(7)}, tmp_path))
    splits = {record.name: record.split for record in captions.records}
    assert splits == {"a.png": "train", "b.png": "train", "c.png": "test", "a.b.png": "train"}


@pytest.mark.bad_input
def test_a_list_that_names_nothing_is_said(tmp_path):
    files = as_folder(listed(test="images/c.png\n"), tmp_path)
    with pytest.raises(
        ValueError, match=r"such as 'a\.png'; '.*testImages\.txt' names none.*'images/c\.png'"
    ):
        read_captions(files)


@pytest.mark.bad_input
def test_a_missing_split_is_named_with_a_remedy(tmp_path):
    rows = b"image,caption\na.png,a dog\nb.png,a cat\n"
    drawn = read_captions(as_folder(table() | {"captions.csv": rows}, tmp_path / "drawn"))
    with pytest.raises(ValueError, match=r"'val' in .*, which has 'train' \(2\); .*at least three images"):
        drawn.split("val")
    rows = b"image,caption,split\na.png,a dog,train\nb.png,a cat,train\nc.png,a cow,train\n"
    stated = read_captions(as_folder(table() | {"captions.csv": rows}, tmp_path / "stated"))
    with pytest.raises(ValueError, match=r"'train' \(3\); give some images the split 'val', or none a split"):
        stated.split("val")
    with pytest.raises(ValueError, match=r"no split 'odd' in .* choose one of these"):
        stated.split("odd")
    with pytest.raises(ValueError, match="ask for some with --n-val"):
        scenes_set(3, 0, 2).split("val")
    with pytest.raises(ValueError, match="which has none"):
        CaptionSet((), stated.images).split("test")


def test_scenes_say_who_tells_how_many():
    assert "--n-train" in scenes_set(3, 2, 1).rule


@pytest.mark.bad_input
def test_coco_as_it_is_downloaded_has_no_test_split_and_proposes_val(tmp_path):
    files = {name: content for name, content in coco().items() if "captions_test" not in name}
    captions = read_captions(as_folder(files, tmp_path))
    assert captions.splits() == {"train": 1, "val": 1}
    with pytest.raises(
        ValueError, match=r"no split 'test' in .*, which has 'train' \(1\), 'val' \(1\); take --split val,"
    ):
        captions.split("test")
    assert captions.split("validation") == captions.split("val")
