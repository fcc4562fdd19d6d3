"""``sightline evaluate`` of a translator, on its own data and on others."""

import json

import pytest

pytestmark = pytest.mark.plain

SMALL = ["--epochs", "1", "--no-tensorboard", "--device", "cpu", "--d-model", "8", "--d-attn", "6"]


def written(folder, *languages, **splits):
    folder.mkdir(exist_ok=True)
    for split, n in splits.items():
        for language in languages:
            lines = "".join(f"{language} {split} {i}\n" for i in range(n))
            (folder / f"{split}.{language}").write_text(lines)
    return folder


@pytest.fixture(scope="module")
def german(tmp_path_factory, command):
    """A run that was not told its languages: from de to en."""
    folder = tmp_path_factory.mktemp("pairs")
    data = written(folder / "data", "de", "en", train=13, val=3)
    common = ["--model", "recurrent", "--tokens", "char", "--out", folder / "run", *SMALL]
    assert command("train", "translate", "--data", data, *common).code == 0
    return folder / "run"


@pytest.fixture
def evaluate(command):
    """Evaluates a run, greedily."""

    def evaluated(run, *arguments):
        return command("evaluate", run, "--beam", 1, "--json", "--device", "cpu", *arguments)

    return evaluated


def test_evaluation_prints_one_object_with_the_promised_names(folder, evaluate):
    scores = json.loads(evaluate(folder).out)
    assert list(scores) == ["bleu", "chrf", "exact_match", "alignment_accuracy"]
    assert all(0 <= value <= 100 for value in scores.values())


def test_a_folder_of_results_is_written(folder, evaluate, tmp_path):
    assert evaluate(folder, "--limit", 3, "--out", tmp_path).code == 0
    rows = json.loads((tmp_path / "predictions.json").read_text())
    assert len(rows) == 3
    assert set(rows[0]) == {"input", "prediction", "score", "references", "chrf"}
    assert "nrefs:1" in json.loads((tmp_path / "scores.json").read_text())["signatures"]["bleu"]
    assert (tmp_path / "results.html").stat().st_size > 5000


def test_other_data_is_read_in_the_languages_of_the_run(german, evaluate, tmp_path):
    ended = evaluate(german, "--data", written(tmp_path / "three", "en", "fr", "de", test=5))
    assert ended.code == 0
    assert "5 pairs of split 'test'" in ended.err
    assert "de to en" in ended.err


def test_the_languages_of_a_run_are_no_wish_of_the_embedded_set(german, evaluate):
    ended = evaluate(german, "--data", "dates", "--limit", 3)
    assert ended.code == 0
    assert "3 pairs of split 'test' of dates, date to iso" in ended.err
    assert "alignment_accuracy" in json.loads(ended.out)
    ended = evaluate(german, "--data", "dates", "--source", "de")
    assert "is translated from 'date' to 'iso', got the source 'de'" in ended.err


def test_other_data_may_call_its_languages_otherwise(german, evaluate, tmp_path):
    data = written(tmp_path / "long", "german", "english", test=5)
    assert evaluate(german, "--data", data, "--source", "german", "--target", "english").code == 0
    ended = evaluate(german, "--data", data)
    assert ended.code == 2
    assert "there is no source 'de' in" in ended.err
    assert "name another with --source, expected one of 'english', 'german'" in ended.err


def test_columns_without_names_are_those_of_the_run(german, evaluate, tmp_path):
    (tmp_path / "test.tsv").write_text("ein Hund\ta dog\neine Katze\ta cat\n")
    ended = evaluate(german, "--data", tmp_path)
    assert ended.code == 0
    assert "2 pairs of split 'test'" in ended.err
    assert "de to en" in ended.err


def test_a_folder_called_dates_is_not_the_embedded_set(folder, evaluate, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dates").mkdir()
    (tmp_path / "dates" / "test.a").write_text("3 漢 1979\n")
    (tmp_path / "dates" / "test.b").write_text("1979-05-03\n")
    ended = evaluate(folder, "--data", "./dates", "--source", "a", "--target", "b")
    assert list(json.loads(ended.out)) == ["bleu", "chrf"], "and unknown letters are read as such"


def test_one_rule_says_what_dates_are(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "dates", "a", "b", train=5, val=3)
    for place, languages in (("dates", "date to iso"), ("./dates", "a to b")):
        common = ["--model", "recurrent", "--n-train", "11", "--n-val", "3", "--n-test", "2", *SMALL]
        out = tmp_path / languages.replace(" ", "")
        ended = command("train", "translate", "--data", place, "--tokens", "char", "--out", out, *common)
        assert ended.err.startswith(f"{languages}: ")


@pytest.mark.bad_input
def test_a_split_that_is_not_there_names_one_that_is(german, evaluate):
    ended = evaluate(german)
    assert ended.code == 2
    assert "no split 'test' in" in ended.err
    assert "--split val" in ended.err
    assert evaluate(german, "--split", "val").code == 0


def test_sources_beyond_the_training_are_evaluated_with_a_note(folder, evaluate, tmp_path):
    (tmp_path / "test.a").write_text("3 mai 1979\n" + "1 " * 90 + "\n")
    (tmp_path / "test.b").write_text("1979-05-03\nx\n")
    ended = evaluate(folder, "--data", tmp_path, "--source", "a", "--target", "b")
    assert ended.code == 0
    assert "1 of 2 sentences have more than the 64 tokens of the training, up to 181" in ended.err
