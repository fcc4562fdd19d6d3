from pathlib import Path

from sightline.data.check_pairs import check_pairs, has_pairs


def write(folder: Path, **texts):
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")


def test_all_that_can_be_wrong_is_told(tmp_path):
    write(
        tmp_path,
        train__en="a dog runs\nsame\nfull\na dog runs\nthis is a very long sentence of many words\n",
        train__de="ein Hund\nsame\n\nein Hund\nkurz\n",
        val__en="a dog runs\nnew words\n",
        val__de="ein Hund\nneue Worte\n",
        test__en="x\ny\n",
        test__de="z\n",
    )
    report = check_pairs(tmp_path, source="en", target="de")
    problems = {kind: list(found) for kind, found in report.problems.items()}
    assert problems["unequal"] == ["test.en has 2 lines and test.de has 1"]
    assert problems["empty"] == ["train, line 3: the target is empty"]
    assert problems["identical"] == ["train, line 2: both sides are 'same'"]
    assert problems["ratio"][0].startswith("train, line 5: 42 letters beside 4")
    assert problems["double"] == ["train has 'a dog runs' 2 times"]
    assert problems["overlap"] == ["'a dog runs' is in train and in val"]
    assert report.splits["train"].pairs == 5
    assert report.splits["val"].unknown == 1 / 5  # "words" is in train
    assert report.as_json()["splits"]["val"]["longest"] == [3, 2]


def test_pairs_are_told_from_captions(tmp_path):
    write(tmp_path, captions__txt="x.jpg,hello", train__json="{}")
    assert not has_pairs(tmp_path)
    write(tmp_path, train__en="a\n", train__de="b\n")
    assert has_pairs(tmp_path)
    assert has_pairs(Path("any.tsv"))
    assert not has_pairs(Path("picture.png"))
