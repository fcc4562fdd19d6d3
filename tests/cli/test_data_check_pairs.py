"""``sightline data check`` of sentence pairs."""

import json

import pytest

from tests.command import run


def check(*words):
    ended = run("data", "check", *words)
    return ended.code, ended.out, ended.err


def written(folder, *languages, **splits):
    for split, n in splits.items():
        for language in languages:
            lines = "".join(f"{language} {split} {i}\n" for i in range(n))
            (folder / f"{split}.{language}").write_text(lines)


def test_pairs_are_checked(tmp_path):
    (tmp_path / "train.en").write_text("a dog\nsame\n")
    (tmp_path / "train.de").write_text("ein Hund\nsame\n")
    code, out, _ = check(tmp_path, "--source", "en")
    assert code == 0
    assert "en to de" in out
    assert "identical (1): pairs with the same text on both sides" in out
    _, out, _ = check(tmp_path, "--source", "en", "--json")
    assert json.loads(out)["splits"]["train"]["pairs"] == 2


def test_a_folder_called_dates_is_not_the_embedded_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dates").mkdir()
    written(tmp_path / "dates", "a", "b", train=5, val=3)
    assert "date to iso" in check("dates")[1]
    assert "a to b" in check("./dates")[1]


@pytest.mark.parametrize("width", [80, 40])
def test_names_of_splits_are_whole(tmp_path, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    names = ("train", "val", "test_2016_flickr", "test_2017_mscoco")
    written(tmp_path, "de", "en", **dict.fromkeys(names, 7))
    code, out, _ = check(tmp_path, "--source", "de")
    assert code == 0
    assert all(name in out for name in names)
    assert ("distinct words" in out) == (width == 80)  # in a narrow window the other columns give way
    assert max(map(len, out.splitlines()[1:7])) <= width


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "expected train.en and train.de"),
        ({"all.en": "x\n", "all.de": "y\n", "all.fr": "z\n"}, "got all.de, all.en"),
        ({"train.en": "x\nz\n", "train.de": "y\n"}, "not one pair of"),
    ],
)
def test_pairs_that_are_none_are_told_as_pairs(tmp_path, files, sentence):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    code, _, err = check(tmp_path, "--source", "en", "--target", "de")
    assert code == 2
    assert sentence in err
    assert "caption" not in err
    assert err.count("\n") == 1


def test_a_set_that_a_training_refuses_is_reported_whole(tmp_path):
    written(tmp_path, "de", "en", train=5)
    (tmp_path / "val.de").write_text("x\ny\n")
    (tmp_path / "val.en").write_text("x\n")
    code, out, _ = check(tmp_path)
    assert code == 0
    assert "unequal (1): splits whose sides differ in length; they can't be paired" in out
    assert "lacking (1): splits that a training needs" in out
    assert "no problem found" not in out
