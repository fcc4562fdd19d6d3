"""How contestants are checked, timed and judged, and what the command prints."""

import json
import math
import os

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import harness, memory
from benchmarks.busy import busy_cores
from benchmarks.harness import OURS, Case, Contest, measure, relative_error

CPU = torch.device("cpu")
EXACT = torch.tensor([3.0, 4.0], dtype=torch.float64)


def measured(contest, **keywords):
    return measure(Case(name="sum of primes", setup=lambda: contest, **keywords), CPU, 1e-9)


def refuse():
    raise RuntimeError("No available kernel.\nmore lines")


def test_the_error_is_the_largest_over_the_outputs():
    got = [EXACT.float(), torch.tensor([3.0, 4.5])]
    assert relative_error(got, [EXACT, EXACT]) == pytest.approx(0.1)
    got[0][0] = math.nan
    assert math.isnan(relative_error(got, [EXACT, EXACT]))


def test_a_wrong_answer_is_a_fault_and_a_rounded_one_is_not():
    rounded = Contest(
        runs={OURS: lambda: [EXACT.float()], "torch": lambda: [EXACT.float()]}, exact=lambda: [EXACT]
    )
    assert measured(rounded)["faults"] == []
    wrong = Contest(
        runs={OURS: lambda: [1.01 * EXACT], "torch": lambda: [EXACT.float()]}, exact=lambda: [EXACT]
    )
    outcome = measured(wrong)
    assert outcome["faults"] == ["inexact"]
    assert outcome["results"][0]["error"] == pytest.approx(0.01)


def test_what_is_checked_and_what_is_not():
    runs = {OURS: lambda: [EXACT + 9, EXACT], "blind": lambda: [EXACT + 9]}
    contest = Contest(
        runs=runs, exact=lambda: [EXACT], part=lambda results: results[1:], unchecked=("blind",)
    )
    assert [x["error"] for x in measured(contest)["results"]] == [0.0, None]


@pytest.mark.parametrize(
    ("times", "peer", "ratio", "faults"),
    [
        ({OURS: 2, "a": 4, "b": 1}, "", 2.0, ["slow"]),
        ({OURS: 2, "a": 4, "b": 1}, "a", 0.5, []),
        ({OURS: 2}, "", None, []),
        ({"a": 4}, "", None, ["did not run"]),
    ],
)
def test_the_ratio_is_ours_over_the_peers(times, peer, ratio, faults):
    results = [{"contestant": name, "milliseconds": ms, "error": None} for name, ms in times.items()]
    outcome = harness.judged(Case(name="c", peer=peer, most=1.5), results, 0.0, [])
    assert (outcome["ratio"], outcome["faults"]) == (ratio, faults)


def test_times_are_the_median_and_the_middle_half():
    found = harness._times([(x, 2 * x) for x in (1.0, 2.0, 3.0, 4.0, 5.0)])
    assert found == {"milliseconds": 3.0, "cpu_milliseconds": 6.0, "spread": 2 / 3}


def test_a_peer_that_can_not_run_is_left_out_and_named():
    outcome = measured(Contest(runs={OURS: lambda: [EXACT], "torch flash": refuse}))
    assert [x["contestant"] for x in outcome["results"]] == [OURS]
    assert outcome["notes"] == ["torch flash could not run: No available kernel."]
    assert measured(Contest(runs={OURS: refuse}))["faults"] == ["did not run"]
    assert "no float64 check" in measured(Contest(runs={OURS: lambda: [EXACT]}, exact=refuse))["notes"][0]


def test_a_setup_that_breaks_is_a_note():
    outcome = measure(Case(name="c", setup=lambda: 1 / 0), CPU, 1e-9)
    assert outcome["notes"] == ["could not be measured: ZeroDivisionError: division by zero"]
    assert "DID NOT RUN" in harness.table({"machine": harness.machine([CPU]), "cases": [outcome]})


def test_contestants_run_in_their_context_once_a_round():
    seen = []

    def run():
        seen.append(torch.is_grad_enabled())
        return [EXACT]

    measured(Contest(runs={OURS: run, "torch": run}, around={"torch": torch.enable_grad}))
    assert seen.count(True) == seen.count(False) >= 4  # a trial and three rounds


def test_a_rate_is_noted():
    outcome = measured(Contest(runs={OURS: lambda: [EXACT]}), examples=(7, "images"))
    assert outcome["notes"][0].endswith(" images/s")


@pytest.mark.skipif(not memory._STATUS.exists(), reason="the system does not say what is resident")
def test_memory_is_that_of_the_call_in_a_fresh_process():
    outcome = measure(memory.memory_case("m", "benchmarks.look:long_look", -1, "a note", length=64), CPU, 1)
    assert 0 <= outcome["results"][0]["peak_bytes"] < 1 << 30
    assert outcome["faults"] == ["large"]


def test_busy_cores_end_with_the_block():
    with busy_cores(2) as n:
        assert n == 2
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.fixture
def tiny(monkeypatch):
    def cases(device, quick):
        runs = {OURS: lambda: [EXACT], "torch": lambda: [EXACT]}
        return [Case(name=f"add {n}", setup=lambda: Contest(runs=runs)) for n in (2, 3)]

    monkeypatch.setattr("benchmarks.attention.cases", cases)


def test_the_command(tiny, capsys, tmp_path):
    assert (
        command.main(["attention", "--device", "cpu", "--seconds", "0.001", "--only", "*3", "--json", "-"])
        == 0
    )
    out, err = capsys.readouterr()
    assert [case["case"] for case in json.loads(out)["cases"]] == ["cpu add 3"]
    assert "[1/1] cpu add 3 ... " in err
    path = tmp_path / "results.json"
    assert (
        command.main(["attention", "--device", "cpu", "--seconds", "0.001", "--busy", "--json", str(path)])
        == 0
    )
    report = json.loads(path.read_text())
    assert len(report["cases"]) == 2
    assert report["machine"]["torch"] == str(torch.__version__)
    out, _ = capsys.readouterr()
    assert "2 of 2 cases have no fault" in out
    assert "cores kept busy" in out


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["zebra"], "invalid choice: 'zebra'"),
        (["attention", "--seconds", "nan"], "--seconds must be above 0"),
        (["attention", "--only", "zebra"], "no case of attention matches 'zebra'"),
        (["attention", "--json", "no/such/x.json"], "is in a folder that does not exist"),
    ],
)
def test_what_is_refused(tiny, capsys, words, sentence):
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
