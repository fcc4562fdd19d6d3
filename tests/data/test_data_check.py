import json
import statistics

import pytest

from sightline.data.captions import CaptionedImage, CaptionSet, read_captions
from sightline.data.check import check
from tests.data.caption_sets import as_folder, as_zip, images, karpathy
from tests.data.picture_files import bomb, encoded, pixels, png


def messy():
    """Train 1 to 4, val 5 and 6; 2 is text, 3 a bomb, 4 repeats 1, 6 is 1 again, saved anew."""
    rows = [f"{i}.png,the dog {i},{'train' if i < 5 else 'val'}" for i in range(1, 8)]
    rows += ["1.png,the dog runs and runs and runs,train", "5.png,the cat,val"]
    return {
        "captions.csv": "\n".join(["image,caption,split", *rows]).encode(),
        "1.png": png(1, 17, 19),
        "2.png": b"no picture at all",
        "3.png": bomb(),
        "4.png": png(1, 17, 19),
        "5.png": png(5, 29, 23),
        "6.png": encoded(pixels(1, 17, 19), "BMP"),
    }


@pytest.fixture(params=["folder", "zip"])
def report(request, tmp_path):
    files = messy()
    path = as_zip(files, tmp_path / "set.zip") if request.param == "zip" else as_folder(files, tmp_path)
    return check(read_captions(path), longest=5)


def test_what_is_wrong_is_named(report):
    assert [(problem.kind, problem.name) for problem in report.problems] == [
        ("missing", "7.png"),
        ("broken", "2.png"),
        ("broken", "3.png"),
        ("too long", "1.png"),
        ("duplicate", "1.png"),
    ]
    sentences = [problem.sentence for problem in report.problems]
    assert "'2.png' is not an image that can be read; it is text" in sentences[1]
    assert "'3.png' has 900000000" in sentences[2]
    assert "'1.png' has 7 words, more than 5: 'the dog runs" in sentences[3]
    assert "'1.png' in train and '6.png' in val" in sentences[4]
    assert report.facts["repeated"] == 1


def test_what_is_there_is_counted(report):
    train, val = report.splits["train"], report.splits["val"]
    assert list(report.splits) == ["train", "val"]
    assert train == {"images": 2, "captions": 3, "words": 6, "unknown": 0, "longest": 7}
    # "5", "6" and "cat" of eight words are not in train.
    assert val == {"images": 2, "captions": 3, "words": 5, "unknown": pytest.approx(3 / 8), "longest": 3}
    assert report.facts["sides"] == [17, statistics.median_low([17, 17, 17, 23]), 23]
    assert report.facts["often"] == 0
    assert (report.facts["form"], report.rule) == ("table", "stated")


def test_it_goes_into_json_and_back(report):
    found = json.loads(json.dumps(report.as_json()))
    assert found["counts"] == {"missing": 1, "broken": 2, "too long": 1, "duplicate": 1}
    assert found["splits"]["val"]["captions"] == 3
    assert found["problems"][0] == {
        "kind": "missing",
        "name": "7.png",
        "sentence": report.problems[0].sentence,
    }


def test_words_seen_often(tmp_path):
    rows = "".join(f"a.png,dog {'cat' if i < 4 else 'cow'},train\n" for i in range(9))
    as_folder({"captions.csv": f"image,caption,split\n{rows}".encode(), "a.png": png(1)}, tmp_path)
    assert check(read_captions(tmp_path)).facts["often"] == 2  # dog nine times and cow five, cat only four


def test_a_clean_set_has_no_problem(tmp_path):
    told = []
    report = check(read_captions(as_folder(karpathy(), tmp_path)), on_progress=told.append)
    assert report.problems == ()
    assert told == [1, 2, 3]


def test_the_share_of_unknown_words_counts_each_as_often_as_it_stands(tmp_path):
    rows = "image,caption,split\na.png,a dog,train\nb.png,a cat cat,val\nc.png,a dog,test\n"
    report = check(read_captions(as_folder({"captions.csv": rows.encode(), **images(".")}, tmp_path)))
    assert {name: split["unknown"] for name, split in report.splits.items()} == {
        "train": 0.0,
        "val": pytest.approx(2 / 3),
        "test": 0.0,
    }


@pytest.mark.bad_input
def test_not_one_image_left(tmp_path):
    files = karpathy() | {f"set/images/{x}.png": b"text" for x in "abc"}
    captions = read_captions(as_folder(files, tmp_path))
    with pytest.raises(
        ValueError, match=r"not one of the 3 images of .* the first: 'a\.png' is not an image"
    ):
        check(captions)
    with pytest.raises(ValueError, match=r"not one of the 0 images of 'none'"):
        check(CaptionSet((), captions.images, source="none"))


@pytest.mark.bad_input
def test_a_longest_caption_of_nothing(tmp_path):
    captions = CaptionSet(
        [CaptionedImage("a", ("a",), "train")], read_captions(as_folder(karpathy(), tmp_path)).images
    )
    with pytest.raises(ValueError, match="at least 1 word, got 0"):
        check(captions, longest=0)
