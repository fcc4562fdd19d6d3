from pathlib import Path

import pytest

from sightline.data.check import check
from sightline.data.dates import dates_set
from sightline.data.pairs import read_pairs
from sightline.data.readers import kind_of, open_dataset


def check_pairs(place, **languages):
    return check(read_pairs(place, strict=False, **languages))


def sentences(report):
    return {kind: [problem.sentence for problem in found] for kind, found in report.by_kind().items()}


def has_pairs(place):
    return kind_of(place) == "translate"


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
    problems = sentences(report)
    assert problems["unequal"] == ["test.en has 2 lines and test.de has 1"]
    assert problems["empty"] == ["train, pair 3: the target is empty"]
    assert problems["identical"] == ["train, pair 2: both sides are 'same'"]
    assert problems["ratio"][0].startswith("train, pair 5: 42 letters beside 4")
    assert problems["double"] == ["train has 'a dog runs' 2 times"]
    assert problems["overlap"] == ["'a dog runs' is in train and in val"]
    assert report.splits["train"]["pairs"] == 5
    assert report.splits["val"]["unknown"] == 1 / 5  # "words" is in train
    assert report.as_json()["splits"]["val"]["longest"] == [3, 2]


def test_lengths_that_fit_are_no_problem(tmp_path):
    write(
        tmp_path,
        train__en="a\na sentence of a common length\n",
        train__de="vielleicht\nein Satz von ueblicher Laenge\n",
        val__en="b\n",
        val__de="c\n",
    )
    assert not check_pairs(tmp_path, source="en").problems, "short ones differ, long ones are alike"


def test_pairs_are_told_from_captions(tmp_path):
    write(tmp_path, captions__txt="x.jpg,hello", train__json="{}")
    (tmp_path / "test_001.jpg").write_bytes(b"\xff\xd8")
    assert not has_pairs(tmp_path)
    write(tmp_path, train__en="a\n", train__de="b\n")
    assert has_pairs(tmp_path)
    (tmp_path / "train.de").write_bytes("Märchen".encode("latin-1"))
    assert has_pairs(tmp_path), "those that can't be read are to be told as pairs"
    write(tmp_path, any__tsv="a\tb\n")
    assert has_pairs(tmp_path / "any.tsv")
    assert not has_pairs(Path("picture.png"))


def test_parallel_texts_without_a_split_are_told_as_pairs(tmp_path):
    write(tmp_path, all__en="a\n", notes__md="x")
    assert not has_pairs(tmp_path)
    write(tmp_path, all__de="b\n")
    assert has_pairs(tmp_path)


def test_a_train_split_of_a_longer_name_is_the_train_split(tmp_path):
    write(
        tmp_path,
        train_tok__en="a dog\n",
        train_tok__de="ein Hund\n",
        test__en="a dog\na cat\n",
        test__de="ein Hund\neine Katze\n",
    )
    report = check_pairs(tmp_path, source="en")
    assert sentences(report)["overlap"] == ["'a dog' is in train_tok and in test"]
    assert report.splits["test"]["unknown"] == 1 / 4


def test_without_a_train_split_nothing_is_said_of_it(tmp_path):
    write(tmp_path, test__en="a dog\n", test__de="ein Hund\n")
    report = check_pairs(tmp_path, source="en")
    assert report.splits["test"]["unknown"] is None
    assert not report.problems, "it is a set to evaluate with"


def test_what_a_training_would_lack_is_a_problem(tmp_path):
    write(tmp_path, train__en="a dog\n", train__de="ein Hund\n")
    (sentence,) = sentences(check_pairs(tmp_path, source="en"))["lacking"]
    assert "no split 'val'" in sentence
    write(tmp_path, val__en="", val__de="")
    problems = sentences(check_pairs(tmp_path, source="en"))
    assert problems["none"] == ["val has no pairs"]
    assert problems["lacking"] == [sentence]


def test_a_single_file_is_shown_in_the_splits_of_a_training(tmp_path):
    rows = [f"word {i}\tWort {i}" for i in range(97)]
    (tmp_path / "all.tsv").write_text("\n".join([*rows, "same\tsame"]))
    report, splits = check_pairs(tmp_path / "all.tsv"), read_pairs(tmp_path / "all.tsv").splits()
    assert {name: one["pairs"] for name, one in report.splits.items()} == splits
    assert sentences(report) == {"identical": ["all.tsv, pair 98: both sides are 'same'"]}
    assert report.as_json()["rule"].startswith("dealt by a hash of each source")
    (tmp_path / "all.tsv").write_text("\n".join(rows[:2]))
    assert "lacking" in check_pairs(tmp_path / "all.tsv").by_kind()


@pytest.mark.bad_input
def test_a_set_without_one_pair_is_refused(tmp_path):
    write(tmp_path, train__en="x\ny\n", train__de="z\n")
    with pytest.raises(ValueError, match=r"not one pair .*: train\.en has 2 lines and train\.de has 1"):
        check_pairs(tmp_path, source="en")
    write(tmp_path, train__de="\n\n")
    with pytest.raises(ValueError, match=r"not one pair .*: train, pair 1: the target is empty"):
        check_pairs(tmp_path, source="en")


def test_the_embedded_set_is_checked_by_name():
    assert has_pairs(Path("dates"))
    report = check(dates_set())
    assert report.splits["test"]["pairs"] == 1000
    assert report.rule == "by a hash of each day"
    assert not {"empty", "overlap"} & report.by_kind().keys()


def test_the_embedded_set_is_not_a_folder_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dates").mkdir()
    write(tmp_path / "dates", test__a="x\n", test__b="y\n")
    assert check(open_dataset("dates")).facts["languages"] == ["date", "iso"]
    assert check(open_dataset("./dates")).facts["languages"] == ["a", "b"]
