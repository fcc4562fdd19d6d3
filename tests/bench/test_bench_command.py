import contextlib
import io
import json
import sys
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from sightline.bench import __main__ as bare
from sightline.bench import attention, case, command
from sightline.bench.sizes import Sizes
from sightline.cli import bench

TINY = Sizes(
    device=torch.device("cpu"),
    lengths=(5,),
    widths=(3,),
    n_heads=2,
    d_model=6,
    tokens=5,
    memory_length=None,
)


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    def cases(device, *, quick):
        return attention.cases(device, sizes=replace(TINY, device=device))

    monkeypatch.setattr(command, "BENCHES", {"attention": (cases,)})


def run_typer(*words):
    done = CliRunner().invoke(bench.app, ["attention", *words])
    return done.exit_code, done.stdout, done.stderr


def run_bare(*words):
    out, err, was = io.StringIO(), io.StringIO(), (sys.stdout, sys.stderr)
    sys.stdout, sys.stderr = out, err
    try:
        return bare.main(["attention", *words]), out.getvalue(), err.getvalue()
    finally:
        sys.stdout, sys.stderr = was


both_ways = pytest.mark.parametrize("call", [run_typer, run_bare])
FEW = ("--device", "cpu", "--budget", "0.001", "--only", "attention*causal")


@both_ways
def test_table_on_stdout_progress_on_stderr(call):
    code, out, err = call(*FEW)
    assert code == 0
    for name in ("forward", "forward+backward"):
        assert f"cpu attention {name} T=5 D=3 causal" in out
        assert f"cpu attention {name} T=5 D=3 causal ..." in err
    assert out.count("  sightline") == out.count("  torch") == 2
    assert "multihead" not in out
    assert "[1/2]" in err
    assert "[1/2]" not in out


@both_ways
def test_bare_json_is_alone_on_stdout(call):
    for words in ((*FEW, "--json"), ("--json", *FEW)):
        code, out, err = call(*words)
        assert code == 0
        read = json.loads(out)
        assert "contestant" in err
        assert read["bench"] == "attention"
        assert len(read["cases"]) == 2
        for one in read["cases"]:
            ours, theirs = (result["milliseconds"] for result in one["results"])
            assert one["ratio"] == theirs / ours


@both_ways
def test_json_in_a_file_names_machine_and_versions(call, tmp_path):
    file = tmp_path / "results.json"
    code, out, _ = call("--json", str(file), *FEW)
    assert code == 0
    assert "contestant" in out
    machine = json.loads(file.read_text())["machine"]
    assert machine["torch"] == torch.__version__
    assert machine["threads"] == torch.get_num_threads()
    assert machine["machine"]
    assert machine["devices"]["cpu"]
    assert machine["date"].endswith("+00:00")
    assert "triton" in machine


def test_budget_reaches_the_stopwatch(monkeypatch):
    seen = []
    measure = case.TimedCase.measure
    monkeypatch.setattr(
        case.TimedCase,
        "measure",
        lambda self, watch, repeats: seen.append(repeats.budget) or measure(self, watch, repeats),
    )
    run_typer(*FEW)
    assert seen == [0.001, 0.001]


def test_a_case_that_breaks_costs_no_other_its_result(monkeypatch):
    measure = case.TimedCase.measure

    def break_backward(self, watch, repeats):
        if "backward" in self.name:
            raise TypeError("no kernel for 5 rows\nmore")
        return measure(self, watch, repeats)

    monkeypatch.setattr(case.TimedCase, "measure", break_backward)
    code, out, _ = run_typer(*FEW)
    assert code == 0
    assert "1 of 2 cases stand" in out or "SLOW" in out
    assert "note: could not be measured: TypeError: no kernel for 5 rows (cpu attention forward+back" in out
    assert "did not run: cpu attention forward+backward T=5 D=3 causal" in out


def test_a_run_that_is_stopped_leaves_what_it_has_measured(monkeypatch, tmp_path):
    measure = case.TimedCase.measure

    def stop_at_backward(self, watch, repeats):
        if "backward" in self.name:
            raise KeyboardInterrupt
        return measure(self, watch, repeats)

    monkeypatch.setattr(case.TimedCase, "measure", stop_at_backward)
    file = tmp_path / "so_far.json"
    with pytest.raises(KeyboardInterrupt):
        command.run("attention", device="cpu", budget=0.001, only="attention*causal", json_to=str(file))
    assert len(json.loads(file.read_text())["cases"]) == 1


@both_ways
def test_busy_is_said_and_kept(call, monkeypatch):
    inside = []

    @contextlib.contextmanager
    def busy_cores():
        inside.append(True)
        yield 7
        inside.append(False)

    monkeypatch.setattr(command, "busy_cores", busy_cores)
    code, out, _ = call(*FEW, "--busy")
    assert code == 0
    assert ", 7 cores kept busy; torch" in out
    assert inside == [True, False]
    assert "kept busy" not in call(*FEW)[1]


def test_help_shows_every_option():
    text = CliRunner().invoke(bench.app, ["attention", "--help"], env={"COLUMNS": "200"}).stdout
    for option in ("--device", "--quick", "--json", "--only", "--budget", "--busy"):
        assert option in text


@pytest.mark.bad_input
@both_ways
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--device", "tpu"), "unknown device 'tpu', expected one of 'cpu', 'cuda'"),
        (("--device", "cdua"), "unknown device 'cdua', expected one of 'cpu', 'cuda'; did you mean 'cuda'?"),
        (("--device", "meta"), "unknown device 'meta'"),
        (("--device", "cuda:93"), "device 'cuda:93' is not there"),
        (("--budget", "-1"), "budget must be a positive number of seconds, got -1.0"),
        (("--budget", "nan"), "budget must be a positive number of seconds, got nan"),
        (("--budget", "0"), "got 0.0"),
        (("--only", "zebra"), "no case matches 'zebra' among 16, from 'cpu attention forward T=5 D=3' to"),
        (("--json", "no/such/folder/x.json"), "needs the folder 'no/such/folder', which is not there"),
        (("--json", "."), "--json needs a file, got the folder '.'"),
    ],
)
def test_bad_input_gets_a_sentence_and_exit_2(call, words, sentence):
    code, out, err = call("--device", "cpu", *words)
    assert code == 2
    assert sentence in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""


@pytest.mark.bad_input
def test_unknown_bench():
    with pytest.raises(ValueError, match=r"unknown bench 'atention'.*did you mean 'attention'"):
        command.run("atention")
