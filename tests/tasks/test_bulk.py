"""Bulk prediction: a row an input, in order, whatever the processes, the kills and the inputs."""

import json
from contextlib import nullcontext

import pyarrow.parquet as pq
import pytest

from sightline.launch import process_share
from sightline.tasks import bulk, open_run
from sightline.tasks.bulk import predict_bulk
from sightline.tasks.bulk_inputs import bulk_inputs
from sightline.tasks.bulk_parts import Parts
from tests.command import run
from tests.tasks.cases import DATA

pytestmark = pytest.mark.plain
RUNS = DATA.parent
DIGITS = sorted((DATA / "digits").rglob("*.png"))


@pytest.fixture(autouse=True)
def _small_parts(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(bulk, "_PART", 4)


@pytest.fixture(scope="module")
def classifier():
    return open_run(RUNS / "classify/finished", "cpu")


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_folder_becomes_a_row_an_image(classifier, tmp_path):
    out = tmp_path / "r.jsonl"
    inputs = bulk_inputs(classifier, [str(DATA / "digits")])
    assert predict_bulk(classifier, inputs, out, batch_size=3, top=3) == (True, True, 33, 0)
    rows = lines(out)
    assert [row["input"] for row in rows] == [str(path) for path in DIGITS]
    for start in range(0, len(rows), 3):  # parts are of 6, batches of 3: the very same sums
        for row, p in zip(rows[start:], classifier.predict(DIGITS[start : start + 3], top=3), strict=False):
            assert (row["prediction"], row["score"]) == (p.text, p.score)
            assert [tuple(x.values()) for x in row["alternatives"]] == [tuple(x) for x in p.alternatives]
    assert {row["error"] for row in rows} == {None}
    assert [path.name for path in (tmp_path / "r.jsonl.parts").iterdir()] == ["plan.json"]


def test_the_result_depends_neither_on_processes_nor_on_the_format(classifier, tmp_path):
    inputs = bulk_inputs(classifier, [str(DATA / "digits"), str(DIGITS[5])])
    one, three = tmp_path / "one.jsonl", tmp_path / "three.jsonl"
    assert predict_bulk(classifier, inputs, one, batch_size=2).merged
    ends = [predict_bulk(classifier, inputs, three, batch_size=2, share=(rank, 3)) for rank in (2, 0, 1)]
    assert [end.merged for end in ends] == [False, False, True]
    assert one.read_bytes() == three.read_bytes()
    table = tmp_path / "one.parquet"
    predict_bulk(classifier, inputs, table, batch_size=2)
    assert pq.read_table(table).to_pylist() == lines(one)


class _Power(Exception):
    pass


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_killed_at_any_part_nothing_is_predicted_twice_or_lost(classifier, tmp_path, monkeypatch, form):
    inputs = bulk_inputs(classifier, [str(DATA / "digits")])
    whole, out = tmp_path / f"whole.{form}", tmp_path / f"r.{form}"
    predict_bulk(classifier, inputs, whole, batch_size=2)
    written, write, merge = [], Parts.write, Parts.merge

    def dies(self, number, rows):
        if len(written) in {2, 3, 5} and number not in kills:
            kills.append(number)
            raise _Power
        written.append(number)
        write(self, number, rows)

    kills = []
    monkeypatch.setattr(Parts, "write", dies)
    for _ in range(3):
        with pytest.raises(_Power):
            predict_bulk(classifier, inputs, out, batch_size=2)
    monkeypatch.setattr(Parts, "merge", lambda self: (_ for _ in ()).throw(_Power))
    with pytest.raises(_Power):
        predict_bulk(classifier, inputs, out, batch_size=2)
    assert not out.exists()
    monkeypatch.setattr(Parts, "merge", merge)
    assert predict_bulk(classifier, inputs, out, batch_size=2)[:2] == (True, True)
    assert sorted(written) == list(range(9))
    assert out.read_bytes() == whole.read_bytes()
    assert predict_bulk(classifier, inputs, out, batch_size=2) == (True, False, 0, 0)  # nothing is left to do
    assert len(written) == 9


def test_a_process_that_begins_late_does_not_begin_anew(classifier, tmp_path, monkeypatch):
    inputs, out = bulk_inputs(classifier, [str(DATA / "digits")]), tmp_path / "r.jsonl"
    begin = Parts.begin

    def late(self):
        found = begin(self)
        monkeypatch.setattr(Parts, "begin", begin)
        predict_bulk(classifier, inputs, out, share=(1, 2))
        predict_bulk(classifier, inputs, out, share=(0, 2))  # all is merged meanwhile
        return found

    monkeypatch.setattr(Parts, "begin", late)
    monkeypatch.setattr(Parts, "kept_for", lambda *_: nullcontext())  # one process plays two
    assert predict_bulk(classifier, inputs, out, share=(0, 2)) == (True, False, 0, 0)
    assert [path.name for path in (tmp_path / "r.jsonl.parts").glob("part*")] == []


def test_inputs_that_can_not_be_read_are_rows_that_say_why(classifier, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    good = DIGITS[0]
    (tmp_path / "list.txt").write_text(f"broken.png\n\nmissing.png\n{good}\nbroken.png\n")
    out = tmp_path / "r.jsonl"
    predict_bulk(classifier, bulk_inputs(classifier, [str(tmp_path / "list.txt")]), out)
    rows = lines(out)
    assert [row["input"] for row in rows] == ["broken.png", "missing.png", str(good), "broken.png"]
    assert [row["prediction"] is None for row in rows] == [True, True, False, True]
    assert rows[0]["error"].endswith("it is text")
    assert "there is no image" in rows[1]["error"]
    assert rows[2]["error"] is None


def test_shards_are_inputs_as_their_images_are(classifier, tmp_path):
    for form in ("tar", "parquet"):
        assert run("data", "pack", DATA / "digits", tmp_path / form, "--format", form).code == 0
        out = tmp_path / f"{form}.jsonl"
        predict_bulk(classifier, bulk_inputs(classifier, [str(tmp_path / form)]), out)
        rows = lines(out)
        assert rows[0]["input"] == f"test-000000.{form}/0"
        assert len(rows) == 33
    both = [lines(tmp_path / f"{form}.jsonl") for form in ("tar", "parquet")]
    assert [(row["prediction"], row["score"]) for row in both[0]] == [
        (row["prediction"], row["score"]) for row in both[1]
    ]


def test_texts_from_lists_and_shards(tmp_path):
    translator = open_run(RUNS / "translate/finished", "cpu")
    (tmp_path / "texts.txt").write_text("3 May 1999\n\n13.5.1999\n")
    run("data", "pack", DATA / "pairs", tmp_path / "shards")
    out = tmp_path / "r.jsonl"
    places = [str(tmp_path / "texts.txt"), "4 May 1999 {a,b} *", str(tmp_path / "shards/val-*.tar")]
    predict_bulk(translator, bulk_inputs(translator, places), out, beam=2, unknown=True, attention=True)
    rows = lines(out)
    names = ["3 May 1999", "", "13.5.1999", places[1], "val-000000.tar/0"]
    assert [row["input"] for row in rows[:5]] == names
    assert rows[1]["error"]
    assert len(rows) == 9
    (expected,) = translator.predict(["3 May 1999"], beam=2)
    assert rows[0]["prediction"] == expected.text
    assert rows[0]["tokens"] == list(expected.attention.queries)
    summary = expected.attention.summary
    assert rows[0]["peak_at"] == summary.argmax(-1).tolist()
    assert rows[0]["peak"] == pytest.approx(summary.amax(-1).tolist(), abs=1e-6)
    assert rows[0]["entropy"] == pytest.approx(expected.attention.entropy.tolist(), abs=1e-5)


def test_every_part_samples_for_itself(tmp_path):
    captioner = open_run(RUNS / "caption/finished", "cpu")
    inputs = bulk_inputs(captioner, [str(DATA / "pictures/00.png")] * 8)
    paths = [tmp_path / f"{i}.jsonl" for i in range(3)]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        predict_bulk(captioner, inputs, path, batch_size=4, temperature=2.0, seed=seed)
    first, again, other = ([row["prediction"] for row in lines(path)] for path in paths)
    assert first == again != other
    assert first[:4] != first[4:]


@pytest.mark.bad_input
def test_other_settings_and_a_result_that_is_there_are_refused(classifier, tmp_path):
    inputs, out = bulk_inputs(classifier, [str(DATA / "digits")]), tmp_path / "r.jsonl"
    out.write_text("mine")
    with pytest.raises(ValueError, match="is there already; remove it"):
        predict_bulk(classifier, inputs, out)
    assert out.read_text() == "mine"
    out.unlink()
    predict_bulk(classifier, inputs, out, batch_size=2, share=(0, 2))
    fewer = bulk_inputs(classifier, [str(DATA / "digits/zero")])
    for changed, given in (
        ({"batch_size": 5}, inputs),
        ({"batch_size": 2, "top": 2}, inputs),
        ({"batch_size": 2}, fewer),
    ):
        with pytest.raises(ValueError, match=r"was begun with other settings or inputs: .*, not "):
            predict_bulk(classifier, given, out, **changed)
    (part,) = sorted((tmp_path / "r.jsonl.parts").glob("part-000000*"))
    part.write_text("")
    with pytest.raises(ValueError, match="must have 4 rows, got 0; it was changed"):
        predict_bulk(classifier, inputs, out, batch_size=2, share=(1, 2))
    parts = Parts(tmp_path / "x.jsonl", {}, [1], attention=False)
    parts.begin()
    with (
        parts.kept_for(0, 1),
        pytest.raises(ValueError, match="another does; wait for it"),
        parts.kept_for(0, 1),
    ):
        pass


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--attention"], "--attention is a column of a table"),
        (["--json", "--out", "r.jsonl"], "predictions are printed or go into 'r.jsonl'"),
        (["--head", "1", "--out", "r.jsonl"], "--head 1 is what a figure shows"),
        (["--batch-size", "0", "--out", "r.jsonl"], "batch_size must be at least 1, got 0"),
        (["--out", "r.csv"], "--out must end in"),
    ],
)
def test_flags_that_do_not_go_together(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("classify", RUNS / "classify/finished", DIGITS[0], *words)
    assert (result.code, said in result.err) == (2, True), result.err
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_how_far_it_is(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    out = tmp_path / "r.parquet"
    words = ("classify", RUNS / "classify/finished", DATA / "digits", tmp_path / "missing.png", "--out", out)
    result = run(*words)
    assert result.code == 0, result.err
    assert result.out == ""
    said = result.err.splitlines()
    assert said[0].startswith("34 of 34 inputs, ")
    assert said[0].endswith(" a second, 0 s left")
    assert said[1:] == ["1 inputs could not be predicted; column error says why", str(out)]
    assert run(*words).err.splitlines() == [str(out)]
    assert "holds some" in run("classify", RUNS / "classify/finished", tmp_path / "empty", "--out", out).err
    table = tmp_path / "texts.jsonl"
    texts = "3 May 1999\n4 May 1999\n"
    assert (
        run("translate", RUNS / "translate/finished", "-", "--out", table, "--beam", 1, stdin=texts).code == 0
    )
    assert [row["input"] for row in lines(table)] == texts.split("\n")[:2]
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="RANK must be a number below WORLD_SIZE"):
        process_share()
