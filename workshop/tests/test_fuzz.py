"""The fuzzers, for a few seconds each; ``make fuzz MINUTES=30 SEED=1`` looks longer, and elsewhere."""

import random
import signal

import pytest
import torch

from tests.sandbox import Outcome, commands, run
from tests.show.explorer.browser import launched
from tests.tiny import preload
from workshop.fuzz import FUZZERS, faults, pages
from workshop.fuzz.cases import Cases
from workshop.fuzz.report import Report

pytestmark = [
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
CASES = {"api": 35, "lines": 12, "runs": 8, "data": 6, "pages": 3, "faults": 3}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    preload()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", FUZZERS)
def test_nothing_is_found(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = FUZZERS[name](Cases(name, 7, count=2 * CASES[name]), tmp_path)
    assert report.count == 2 * CASES[name]
    assert not report.failures, str(report)


def test_the_sandbox_sees_what_is_wrong():
    def hang():
        while True:
            pass

    def hungry():
        return bytes(1 << 32)

    def dead():
        signal.raise_signal(signal.SIGKILL)

    found = {call.__name__: run(call, seconds=1.0, megabytes=500) for call in (hang, hungry, dead)}
    assert found["hang"].faults() == ["hang"]
    assert "traceback" in found["hungry"].faults()
    assert found["dead"].faults() == ["killed by signal 9"]
    said = Outcome(("--json",), 0, '{"a": NaN}', "\x1b[2J", 0.1, 1)
    assert said.faults() == ["control codes", "no JSON"]
    assert Outcome((), 2, "", "", 0.1, 1).faults() == ["silent"]
    assert Outcome((), 2, "", "'str' object has no attribute 'x'", 0.1, 1).faults() == ["foreign sentence"]
    assert not Outcome((), 2, "", "d_model must be a whole number, got '8'", 0.1, 1).faults()


def test_lines_that_share_a_child_are_judged_one_by_one(monkeypatch):
    def main(words):
        print(words[0])
        if words == ["dead"]:
            signal.raise_signal(signal.SIGKILL)
        if words != ["fine"]:
            raise LookupError(words[0])
        raise SystemExit(2)

    monkeypatch.setattr("sightline.cli.main", main)
    lines = [["fine"], ["wrong"], ["fine"], ["dead"], ["fine"]]
    found = list(commands(lines, seconds=5.0))
    assert [outcome.words for outcome in found] == [tuple(words) for words in lines]
    fine, wrong, dead = [], ["traceback"], ["killed by signal 9"]
    assert [outcome.faults() for outcome in found] == [fine, wrong, fine, dead, fine]
    assert [outcome.out for outcome in found] == ["fine\n", "wrong\n", "fine\n", "", "fine\n"]


def test_a_page_that_runs_something_is_seen():
    with launched() as browser:
        context = browser.new_context()
        ran = pages._opened(context, "<script>window.owned=1</script>")
        asked = pages._opened(context, "<img src='file:///nowhere.png'><base href='x'>")
        fine = pages._opened(context, "&lt;script>")
    assert ran == ["something ran"]
    assert asked == ["asked for file:///nowhere.png", "markup was taken for markup"]
    assert fine == []


def test_a_lost_training_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "fingerprint", lambda out: [str(out)])  # every run has other weights
    report, undisturbed = Report("faults", 0), faults.reference("classify", tmp_path)
    middle = undisturbed.changes // 2
    faults.case(report, random.Random(0), "classify", "kill", tmp_path / "x", undisturbed, at=middle)  # noqa: S311
    assert "other weights" in report.failures[0]


def test_a_report_counts():
    report = Report("x", 3)
    report.add("one", "refused")
    report.add("two", "refused", ["hang"])
    assert str(report).splitlines() == [
        "x: 2 cases, 1 failures (seed 3; fault: hang 1, refused 1)",
        "  hang: two",
    ]
