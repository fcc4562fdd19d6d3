"""``--out results.jsonl``: a line for each input; a killed run and the same command again give each once."""

import json

import pytest

from sightline.tasks import open_run
from sightline.tasks.run import Run
from tests.command import run
from tests.tasks.cases import DATA

pytestmark = pytest.mark.plain
RUNS = DATA.parent
CLASSIFIER = RUNS / "classify/finished"
DIGITS = sorted((DATA / "digits").rglob("*.png"))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_folder_becomes_a_line_for_each_image(tmp_path):
    out = tmp_path / "r.jsonl"
    result = run("classify", CLASSIFIER, DATA / "digits", "--out", out, "--top", 3, "--batch-size", 7)
    assert (result.code, result.out, result.err) == (0, "", f"{out}\n")
    rows = lines(out)
    assert [row["input"] for row in rows] == [str(path) for path in DIGITS]
    expected = open_run(CLASSIFIER, "cpu").predict(DIGITS, top=3, batch_size=7)
    for row, p in zip(rows, expected, strict=True):
        assert (row["prediction"], row["score"]) == (p.text, p.score)
        assert [tuple(x.values()) for x in row["alternatives"]] == [tuple(x) for x in p.alternatives]


def test_killed_anywhere_and_run_again_loses_nothing_and_predicts_nothing_twice(tmp_path, monkeypatch):
    words = ("classify", CLASSIFIER, *DIGITS[:11], "--batch-size", 2, "--out")
    whole, out = tmp_path / "whole.jsonl", tmp_path / "r.jsonl"
    assert run(*words, whole).code == 0
    asked, predict = [], Run.predict

    def counted(self, inputs, **how):
        return predict(self, (asked.append(one) or one for one in inputs), **how)

    monkeypatch.setattr(Run, "predict", counted)
    text = whole.read_bytes()
    ends = [0, 1, text.index(b"\n"), text.index(b"\n") + 1, len(text) // 2, len(text) - 1, len(text)]
    for end in ends:
        asked.clear()
        out.write_bytes(text[:end])
        assert run(*words, out).code == 0
        assert [row["input"] for row in lines(out)] == [str(path) for path in DIGITS[:11]]
        assert len(asked) == 11 - text[:end].count(b"\n")


def test_the_same_text_twice_is_two_lines_and_more_inputs_are_appended(tmp_path):
    out, words = tmp_path / "r.jsonl", ("translate", RUNS / "translate/finished", "-", "--beam", 1, "--out")
    first, second, third = "3 May 1999", "4 May 1999", "1 May 2001"
    for texts in ([first, second], [second, first, first, third]):
        assert run(*words, out, stdin="\n".join(texts)).code == 0
    assert [row["input"] for row in lines(out)] == [first, second, first, third]


def test_an_input_that_can_not_be_read_is_a_line_that_says_why(tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    given = [tmp_path / "broken.png", tmp_path / "missing.png", DIGITS[0], tmp_path / "broken.png"]
    result = run("classify", CLASSIFIER, *given, "--out", tmp_path / "r.jsonl")
    assert result.code == 0
    assert result.err.splitlines()[0] == "3 inputs could not be predicted; their error says why"
    rows = lines(tmp_path / "r.jsonl")
    assert [row["input"] for row in rows] == list(map(str, given))
    assert [row["prediction"] is None for row in rows] == [True, True, False, True]
    assert rows[0]["error"].endswith("it is text")
    assert "there is no image" in rows[1]["error"]
    assert "error" not in rows[2]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--json", "--out", "r.jsonl"], "predictions are printed or go into 'r.jsonl'"),
        (["--head", "1", "--out", "r.jsonl"], "--head 1 is what a figure shows"),
        (["--batch-size", "0", "--out", "r.jsonl"], "batch_size must be at least 1, got 0"),
        (["--out", "r.parquet"], "--out must end in"),
        (["--out", "mine.jsonl"], "line 1 of 'mine.jsonl' is not a prediction; name another --out"),
    ],
)
def test_what_is_refused(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonl").write_text("mine\n")
    result = run("classify", CLASSIFIER, DIGITS[0], *words)
    assert (result.code, said in result.err) == (2, True), result.err
    assert (tmp_path / "mine.jsonl").read_text() == "mine\n"


@pytest.mark.bad_input
def test_one_process_writes(tmp_path, monkeypatch):
    monkeypatch.setattr("sightline.cli.predict_rows.launched", lambda: True)
    result = run("classify", CLASSIFIER, DIGITS[0], "--out", tmp_path / "r.jsonl")
    assert result.code == 2
    assert "a launcher has started several; start one" in result.err


def test_an_image_whose_name_has_two_lines_is_printed_on_one(tmp_path):
    image = tmp_path / "one\ntwo.png"
    image.write_bytes(DIGITS[0].read_bytes())
    result = run("classify", CLASSIFIER, image)
    assert (result.code, result.out.count("\n")) == (0, 1)
    assert "one\\ntwo.png: " in result.out
