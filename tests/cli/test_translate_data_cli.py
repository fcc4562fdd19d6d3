import json

import pytest

from sightline.evaluate.translation import alignment_accuracy
from tests.cli.translate_runs import run

SMALL = ["--epochs", "1", "--no-tensorboard", "--device", "cpu", "--d-model", "8", "--d-attn", "6"]


def written(folder, *languages, **splits):
    folder.mkdir(exist_ok=True)
    for split, n in splits.items():
        for language in languages:
            lines = "".join(f"{language} {split} {i}\n" for i in range(n))
            (folder / f"{split}.{language}").write_text(lines)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run that was not told its languages: from de to en."""
    folder = tmp_path_factory.mktemp("pairs")
    data = written(folder / "data", "de", "en", train=13, val=3)
    common = ["--model", "recurrent", "--tokens", "char", "--out", folder / "run", *SMALL]
    assert run("train", "translate", "--data", data, *common) == 0
    return folder / "run"


def evaluated(made, capsys, *arguments):
    capsys.readouterr()
    code = run("evaluate", made, "--beam", 1, "--json", "--device", "cpu", *arguments)
    return code, capsys.readouterr().err


def test_other_data_is_read_in_the_languages_of_the_run(made, tmp_path, capsys):
    data = written(tmp_path / "three", "en", "fr", "de", test=5)
    code, told = evaluated(made, capsys, "--data", data)
    assert code == 0
    assert "5 pairs of split 'test'" in told
    assert "de to en" in told


def test_the_languages_of_a_run_are_no_wish_of_the_embedded_set(made, capsys):
    _, told = evaluated(made, capsys, "--data", "dates", "--most", 3)
    assert "is translated from 'date' to 'iso'" not in told


def test_other_data_may_call_its_languages_otherwise(made, tmp_path, capsys):
    data = written(tmp_path / "long", "german", "english", test=5)
    named = ["--source", "german", "--target", "english"]
    assert evaluated(made, capsys, "--data", data, *named)[0] == 0
    code, told = evaluated(made, capsys, "--data", data)
    assert code == 2
    assert "there is no source 'de' in" in told
    assert "name another with --source, expected one of 'english', 'german'" in told


def test_columns_without_names_are_those_of_the_run(made, tmp_path, capsys):
    (tmp_path / "test.tsv").write_text("ein Hund\ta dog\neine Katze\ta cat\n")
    code, told = evaluated(made, capsys, "--data", tmp_path)
    assert code == 0
    assert "2 pairs of split 'test'" in told
    assert "de to en" in told


@pytest.mark.bad_input
def test_a_split_that_is_not_there_names_one_that_is(made, capsys):
    code, told = evaluated(made, capsys)
    assert code == 2
    assert "no split 'test' in" in told
    assert "--split val" in told
    assert evaluated(made, capsys, "--split", "val")[0] == 0


@pytest.mark.bad_input
def test_languages_are_no_matter_of_other_kinds(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps({"kind": "caption", "model": {}}))
    assert evaluated(tmp_path, capsys, "--target", "de")[0] == 2
    assert run("evaluate", tmp_path, "--source", "de") == 2
    assert "--source is for runs of kind 'translate'" in capsys.readouterr().err


def test_all_splits_are_evaluated_together(tmp_path, capsys, monkeypatch):
    sizes = {"--n-train": 17, "--n-val": 5, "--n-test": 7}
    flags = [str(x) for pair in sizes.items() for x in pair]
    common = ["--data", "dates", "--model", "recurrent", "--out", tmp_path / "run", *SMALL]
    assert run("train", "translate", *common, *flags) == 0
    seen = []

    def spy(translations, dates, offsets):
        seen.append(([one.source for one in translations], [date.source for date in dates]))
        return alignment_accuracy(translations, dates, offsets)

    monkeypatch.setattr("sightline.cli.evaluate_translate.alignment_accuracy", spy)
    for split in ("all", "train", "val", "test"):
        assert evaluated(tmp_path / "run", capsys, "--split", split)[0] == 0
    everything, *parts = seen
    assert everything[0] == everything[1] == [text for part in parts for text in part[0]]
    assert len(everything[0]) == sum(sizes.values())


def test_one_rule_says_what_dates_are(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "dates", "a", "b", train=5, val=3)
    for place, languages in (("dates", "date to iso"), ("./dates", "a to b")):
        assert run("data", "check", place) == 0
        assert languages in capsys.readouterr().out
        common = ["--model", "recurrent", "--n-train", "11", "--n-val", "3", "--n-test", "2", *SMALL]
        out = tmp_path / languages.replace(" ", "")
        assert run("train", "translate", "--data", place, "--tokens", "char", "--out", out, *common) == 0
        assert capsys.readouterr().err.startswith(f"{languages}: ")


@pytest.mark.parametrize("width", ["80", "40"])
def test_names_of_splits_are_whole(tmp_path, capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    names = ("train", "val", "test_2016_flickr", "test_2017_mscoco")
    written(tmp_path, "de", "en", **dict.fromkeys(names, 7))
    assert run("data", "check", tmp_path, "--source", "de") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in names)
    assert "distinct words" in shown or width == "40"
    assert max(map(len, shown.splitlines()[1:7])) <= 80


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "expected train.en and train.de"),
        ({"all.en": "x\n", "all.de": "y\n"}, "got all.de, all.en"),
        ({"train.en": "x\nz\n", "train.de": "y\n"}, "not one pair of"),
    ],
)
def test_pairs_that_are_none_are_told_as_pairs(tmp_path, capsys, files, sentence):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert run("data", "check", tmp_path, "--source", "en", "--target", "de") == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert "caption" not in told
    assert told.count("\n") == 1


def test_a_set_that_a_training_refuses_is_reported_whole(tmp_path, capsys):
    written(tmp_path, "de", "en", train=5)
    (tmp_path / "val.de").write_text("x\ny\n")
    (tmp_path / "val.en").write_text("x\n")
    assert run("data", "check", tmp_path) == 0
    shown = capsys.readouterr().out
    assert "unequal (1): splits whose sides differ in length; they can't be paired" in shown
    assert "lacking (1): splits that a training needs" in shown
    assert "no problem found" not in shown
