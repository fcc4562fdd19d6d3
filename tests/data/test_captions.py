import hashlib
import io
import json
import unicodedata

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from sightline.data.captions import CaptionedImage, CaptionSet, clean, read_captions
from sightline.data.images import BrokenImage, read_image
from sightline.data.sources import Folder, Index
from tests.data.caption_sets import CAPTIONS, LAYOUTS, SPLITS, STATED, as_folder, as_zip, images, karpathy
from tests.data.picture_files import bomb, png


def as_listed(tree):
    return {path: path.stat().st_mtime_ns for path in [tree, *tree.rglob("*")]}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_from_a_folder_and_a_zip(tmp_path, layout, packed):
    files = LAYOUTS[layout]()
    path = as_zip(files, tmp_path / "set.zip") if packed else as_folder(files, tmp_path)
    before = as_listed(tmp_path)
    captions = read_captions(path)
    assert {record.name: list(record.captions) for record in captions.records} == CAPTIONS
    assert captions.problems == ()
    assert captions.source == str(path)
    if layout in STATED:
        assert {record.name: record.split for record in captions.records} == SPLITS
        assert captions.rule == "stated"
    else:
        assert sorted(record.split for record in captions.records) == ["test", "train", "val"]
        assert "seed 0" in captions.rule
    for record in captions.records:
        alone = png(list(CAPTIONS).index(record.name))
        assert torch.equal(captions.open(record), read_image(io.BytesIO(alone)))
        assert captions.open(record, size=5).shape == (3, 5, 5)
        assert captions.image_digest(record) == hashlib.sha256(alone).hexdigest()
    assert as_listed(tmp_path) == before


def test_a_caption_file_may_be_named_itself(tmp_path):
    as_folder(LAYOUTS["coco"](), tmp_path)
    (tmp_path / "dataset_a.json").write_bytes(b"{}")
    captions = read_captions(tmp_path / "annotations" / "captions_val2017.json")
    assert [record.name for record in captions.records] == ["b.png"]
    assert captions.splits() == {"val": 1}


def test_any_other_name_of_a_json_will_do_but_not_another_tasks(tmp_path):
    files = karpathy()
    files["set/my notes.json"] = files.pop("set/dataset_small.json")
    files["set/instances_val.json"] = b"never read"
    assert len(read_captions(as_folder(files, tmp_path))) == 3


def test_karpathys_folders_and_rest_of_val(tmp_path):
    entries = [
        {"filepath": "train", "filename": "a.png", "split": "restval", "sentences": [{"raw": "one dog"}]},
        {"filepath": "val", "filename": "a.png", "split": "val", "sentences": [{"tokens": ["two", "dogs"]}]},
    ]
    files = {"train/a.png": png(1), "val/a.png": png(2)}
    as_folder({"dataset.json": json.dumps({"images": entries}).encode(), **files}, tmp_path)
    first, second = read_captions(tmp_path).records
    assert (first.name, first.split, second.captions) == ("train/a.png", "train", ("two dogs",))
    captions = read_captions(tmp_path)
    assert captions.image_digest(first) != captions.image_digest(second)


def table_of(tmp_path, content, **extra):
    return as_folder({"captions.csv": content.encode(), **images("."), **extra}, tmp_path)


def test_tables_people_write(tmp_path):
    for content in (
        "image;caption\na.png;a red dog\n",
        "image\tcaption\na.png\ta red dog\n",
        "a.png,a red dog\n",
        "split,caption,image\n,a red dog,a.png\n",
        "image,caption\na.png,a red dog\n\n  \n",
        "image,caption\na.png,a   red\u00a0dog  \n",
    ):
        (record,) = read_captions(table_of(tmp_path, content)).records
        assert record == CaptionedImage("a.png", ("a red dog",), "train")
    (record,) = read_captions(table_of(tmp_path, "image,caption\na.png,a dog, red, runs\n")).records
    assert record.captions == ("a dog,red,runs",)
    (record,) = read_captions(table_of(tmp_path, "image,caption_1,caption_2\na.png,one,two\n")).records
    assert record.captions == ("one", "two")


def test_a_comma_without_quotes_stays_in_its_caption(tmp_path):
    rows = "image,caption,split\na.png,a dog, red, runs,val\nb.png,a cat,test,,\n"
    first, second = read_captions(table_of(tmp_path, rows)).records
    assert (first.captions, first.split) == (("a dog,red,runs",), "val")
    assert (second.captions, second.split) == (("a cat",), "test")


def test_a_table_without_a_header_may_state_splits(tmp_path):
    first, second = read_captions(table_of(tmp_path, "a.png,a dog,train\nb.png,a cat, asleep,dev\n")).records
    assert (first.captions, first.split) == (("a dog",), "train")
    assert (second.captions, second.split) == (("a cat,asleep",), "val")
    (record,) = read_captions(table_of(tmp_path, "a.png,a dog,on a train\n")).records
    assert record.captions == ("a dog,on a train",)


def test_a_caption_may_have_lines_and_quotes_of_its_own(tmp_path):
    rows = 'image,caption\na.png,"a dog\nthat runs"\nb.png,"a ""big"" cat"\n'
    assert [x.captions for x in read_captions(table_of(tmp_path, rows)).records] == [
        ("a dog that runs",),
        ('a "big" cat',),
    ]
    (record,) = read_captions(table_of(tmp_path, 'image,caption\na.png,"a "big" cat"\n')).records
    assert clean(record.captions[0]) == "a big cat"


def test_no_line_of_flickrs_is_lost_without_a_word(tmp_path):
    lines = "a.png#0\ta dog\u2028that runs\r\nb.png a cat\r\nc.png#0\ta cow\r\n"
    captions = read_captions(as_folder({"x.token.txt": lines.encode(), **images(".")}, tmp_path))
    assert [record.captions for record in captions.records] == [("a dog that runs",), ("a cow",)]
    assert [problem.kind for problem in captions.problems] == ["no name"]


def test_what_a_row_states_stands_above_the_lists(tmp_path):
    rows = b"image,caption,split\na.png,a dog,test\nb.png,a cat,\n"
    lists = {"trainImages.txt": b"a.png\n", "devImages.txt": b"b.png\n"}
    captions = read_captions(as_folder({"captions.txt": rows, **lists, **images(".")}, tmp_path))
    assert [record.split for record in captions.records] == ["test", "val"]


def test_one_file_is_not_taken_for_two_images(tmp_path):
    rows = "image,caption,split\ntrain/1.png,a dog,train\nval/1.png,a cat,val\nold/2.png,a cow,test\n"
    files = {"captions.csv": rows.encode(), "val/1.png": png(1), "new/2.png": png(2)}
    captions = read_captions(as_folder(files, tmp_path))
    assert [record.name for record in captions.records] == ["val/1.png", "old/2.png"]
    assert [(problem.kind, problem.name) for problem in captions.problems] == [("missing", "train/1.png")]


def test_a_caption_without_a_word_is_told(tmp_path):
    captions = read_captions(table_of(tmp_path, "image,caption\na.png,a dog\na.png,?!\na.png,\n"))
    assert captions.records[0].captions == ("a dog",)
    assert [problem.sentence for problem in captions.problems] == ["2 of 3 captions of 'a.png' hold no word"]


def test_zips_whose_names_begin_with_dots(tmp_path):
    for before in ("./", "../", "/abs/"):
        files = {before + name: content for name, content in karpathy().items()}
        assert len(read_captions(as_zip(files, tmp_path / "set.zip"))) == 3


def test_utf16_with_its_mark(tmp_path):
    as_folder({"captions.csv": "image,caption\na.png,café\n".encode("utf-16"), **images(".")}, tmp_path)
    assert read_captions(tmp_path).records[0].captions == ("café",)


def test_images_that_are_missing_or_say_nothing_are_problems(tmp_path):
    rows = "image,caption\na.png,a dog\nnowhere.jpg,a cat\nb.png,...\nb.png,\n,lost words\n"
    captions = read_captions(table_of(tmp_path, rows))
    assert [record.name for record in captions.records] == ["a.png"]
    assert [(x.kind, x.name) for x in captions.problems] == [
        ("no caption", "b.png"),
        ("no name", "entry 3"),
        ("missing", "nowhere.jpg"),
    ]
    assert f"'nowhere.jpg' is not in {str(tmp_path)!r}" in captions.problems[2].sentence


def test_an_annotation_cannot_reach_out_of_the_folder(tmp_path):
    (tmp_path / "secret.png").write_bytes(png(1))
    rows = f"image,caption\na.png,a dog\n../secret.png,no\n{tmp_path}/secret.png,no\n"
    captions = read_captions(table_of(tmp_path / "set", rows))
    assert len(captions) == 1
    assert [x.kind for x in captions.problems] == ["missing"] * 2


def test_a_broken_image_is_named_and_the_others_open(tmp_path):
    files = karpathy() | {"set/images/b.png": b"text", "set/images/c.png": bomb()}
    for path in (as_folder(files, tmp_path / "folder"), as_zip(files, tmp_path / "set.zip")):
        captions = read_captions(path)
        a, b, c = captions.records
        assert captions.open(a).shape == (3, 11, 13)
        for record in (b, c):
            with pytest.raises(BrokenImage, match=record.name):
                captions.open(record)


def test_a_damaged_zip_entry_is_a_broken_image(tmp_path):
    path = as_zip(karpathy(), tmp_path / "set.zip")
    content = bytearray(path.read_bytes())
    at = content.index(b"set/images/b.png") + 40
    content[at : at + 9] = b"x" * 9
    path.write_bytes(content)
    captions = read_captions(path)
    with pytest.raises(
        BrokenImage, match=r"the image 'b\.png' can't be read: can't read 'set/images/b\.png'"
    ):
        captions.open(captions.records[1])
    assert captions.open(captions.records[2]).shape == (3, 11, 13)


def test_links_in_circles_end(tmp_path):
    as_folder(karpathy(), tmp_path)
    (tmp_path / "set" / "round").symlink_to(tmp_path)
    assert len(read_captions(tmp_path)) == 3
    assert Folder(tmp_path).names() == sorted(karpathy())


def test_a_name_may_be_spelled_in_two_ways():
    composed, in_parts = "caf\u00e9.jpg", "cafe\u0301.jpg"
    assert Index([f"s/{in_parts}"]).find(composed) == f"s/{in_parts}"
    assert Index([f"s/{composed}"]).find(in_parts, near="s") == f"s/{composed}"
    for name in (composed, in_parts):  # where both are there, each is itself
        assert Index([composed, in_parts]).find(name) == name


def test_files_are_found_by_as_much_of_their_path_as_is_known():
    index = Index(["s/x/cat.jpg", "s/y/cat.jpg", "s/cow.jpg", "t/x/hen.jpg", "t/hen.jpg"])
    assert index.find("x/cat.jpg") == "s/x/cat.jpg"
    assert index.find(".\\y\\cat.jpg") == "s/y/cat.jpg"
    assert index.find("elsewhere/cow.jpg") == "s/cow.jpg"
    assert index.find("cat.jpg") is None
    assert index.find("cat.jpg", near="s/y") == "s/y/cat.jpg"
    assert index.find("hen.jpg", near="t") == "t/hen.jpg"


def drawn(tmp_path, n, seed):
    names = [f"{i}.png" for i in range(n)]
    rows = "".join(f"{name},a dog\n" for name in names)
    as_folder({"captions.csv": f"image,caption\n{rows}".encode()} | dict.fromkeys(names, b""), tmp_path)
    return {record.name: record.split for record in read_captions(tmp_path, seed=seed).records}


def test_drawn_splits_follow_the_stated_rule(tmp_path):
    splits = drawn(tmp_path, 53, seed=3)
    assert sorted(splits.values()) == ["test"] * 5 + ["train"] * 43 + ["val"] * 5
    assert drawn(tmp_path, 53, seed=3) == splits
    assert drawn(tmp_path, 53, seed=4) != splits
    assert sorted(drawn(tmp_path / "three", 3, seed=0).values()) == ["test", "train", "val"]
    assert sorted(drawn(tmp_path / "two", 2, seed=0).values()) == ["train", "train"]


def test_where_some_splits_are_stated_the_rest_is_trained_on(tmp_path):
    rows = "image,caption,split\na.png,one,dev\nb.png,two,\nc.png,three,Test\n"
    captions = read_captions(table_of(tmp_path, rows))
    assert [record.split for record in captions.records] == ["val", "train", "test"]


class Drawn:
    def open(self, name, *, size=None):
        return torch.full((3, 5, 7), int(name), dtype=torch.uint8)

    def digest(self, name):
        return name


def test_a_set_of_ones_own():
    records = [
        CaptionedImage(str(i), (f"The {i}.",), split)
        for i, split in enumerate(["val", "odd", "train", "val"])
    ]
    captions = CaptionSet(records, Drawn(), source="mine")
    assert captions.splits() == {"train": 1, "val": 2, "odd": 1}
    assert captions.split("val") == [records[0], records[3]]
    assert captions.lines("val") == ["the 0", "the 3"]
    assert captions.open(records[3]).unique().tolist() == [3]
    assert captions.image_digest(records[1]) == "1"
    assert len(captions) == 4


@given(st.text())
def test_clean_text_stays_clean(text):
    found = clean(text)
    assert clean(found) == found
    assert found == " ".join(found.split())
    assert all(c in "' " or unicodedata.category(c)[0] in "LMN" for c in found)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("A man's T-shirt,  No. 7!", "a man's t shirt no 7"),
        ("'quoted' words’ end", "quoted words end"),
        ("It’s ŁÓDŹ & ｆｕｌｌ", "it's łódź full"),
        ("नमस्ते दुनिया।", "नमस्ते दुनिया"),
        ("snake_case <unk>", "snake case unk"),
        (" ... ", ""),
    ],
)
def test_cleaning(text, cleaned):
    assert clean(text) == cleaned


def test_cleaning_plain_text_is_what_a_loop_does():
    text = "The DOG, (a 'big' one) isn't here; rock'n'roll: 42%"
    kept = "".join(c if c.isalnum() or c == "'" else " " for c in text.lower())
    assert clean(text) == " ".join(filter(None, (word.strip("'") for word in kept.split())))


def test_a_name_that_two_splits_have_means_the_folder_of_its_own(tmp_path):
    for folder, colour in (("train2017", (200, 0, 0)), ("val2017", (0, 0, 200))):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (5, 7), colour).save(tmp_path / folder / "1.png")
        content = {
            "images": [{"id": 1, "file_name": "1.png"}],
            "annotations": [{"id": 1, "image_id": 1, "caption": f"a {folder} dog"}],
        }
        (tmp_path / "annotations").mkdir(exist_ok=True)
        (tmp_path / "annotations" / f"captions_{folder}.json").write_text(json.dumps(content))
    captions = read_captions(tmp_path)
    assert captions.splits() == {"train": 1, "val": 1}
    assert not captions.problems
    (of_val,) = captions.split("val")
    assert of_val.captions == ("a val2017 dog",)
    assert captions.open(of_val)[:, 0, 0].tolist() == [0, 0, 200]
