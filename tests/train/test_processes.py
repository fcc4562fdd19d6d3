"""Several processes, gloo, on the CPU; one process alone is the oracle. One program does all the training."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.plain


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def found(folder):
    program = Path(__file__).with_name("processes_program.py")
    done = subprocess.run(  # noqa: S603
        [sys.executable, program, folder],
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
        env=os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR"},  # as the command sets it before torch is imported
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def flat(run):
    return torch.cat([torch.tensor(values) for _, values in sorted(run["weights"].items())])


def assert_same_curve(one, other):
    assert len(one["rows"]) == len(other["rows"]) > 12
    assert one["rows"][0] == other["rows"][0]
    for a, b in zip(one["rows"][1:], other["rows"][1:], strict=True):
        numbers = [[float(x) if x else 0.0 for x in row.split(",")] for row in (a, b)]
        torch.testing.assert_close(*map(torch.tensor, numbers), rtol=1e-5, atol=1e-6)


def test_work_is_shared_and_trouble_too(found, folder):
    assert found["functions"]["codes"] == [0, 0], found["functions"]["lines"]
    for rank in (0, 1):
        seen = json.loads((folder / f"functions-{rank}.json").read_text())
        assert seen == {
            "spread": [[0, 0], [1, 1], [2, 0], [3, 1], [4, 0]],
            "main": 0,
            "spread failed": "three",
            "own failed": "three",
        }


@pytest.mark.parametrize("kind", ["caption", "translate", "classify"])
def test_an_evaluation_has_the_scores_of_one_process(found, folder, kind):
    assert found[f"{kind} 2"]["codes"] == [0, 0], found[f"{kind} 2"]["lines"]
    one, two = ((folder / f"{kind}-{n}.json").read_text() for n in (1, 2))
    assert len(json.loads(one)) >= 2
    assert one == two


def test_a_curve_does_not_depend_on_the_number_of_processes(found):
    """The last batch has one example: all processes but one have none."""
    for name in ("three", "sharded"):
        assert set(found[name]["codes"]) == {0}, found[name]["lines"]
        assert_same_curve(found["one"], found[name])
        torch.testing.assert_close(flat(found["one"]), flat(found[name]), rtol=1e-5, atol=1e-6)


def test_a_killed_process_ends_all_and_the_run_goes_on(found):
    killed = found["killed"]
    assert killed["codes"] == [2, -9]
    assert len(killed["lines"]) == 1
    assert "stopped in step 7: one of its 2 processes has ended" in killed["lines"][0]
    assert "step 6 is saved" in killed["lines"][0]
    assert "--resume" in killed["lines"][0]
    assert found["resumed"]["codes"] == [0, 0], found["resumed"]["lines"]
    assert found["resumed"]["weights"] == found["sharded"]["weights"]
    assert found["resumed"]["rows"] == found["sharded"]["rows"]


def test_a_sharded_run_goes_on_in_one_process(found):
    assert found["resumed alone"]["codes"] == [0], found["resumed alone"]["lines"]
    assert_same_curve(found["sharded"], found["resumed alone"])
    torch.testing.assert_close(flat(found["sharded"]), flat(found["resumed alone"]), rtol=1e-4, atol=1e-5)


def test_a_signal_to_one_stops_all_after_the_same_step(found):
    told = found["told"]
    assert told["codes"] == [143, 143]
    said = [line for line in told["lines"] if line.startswith("stopped after step")]
    assert len(said) == 1
    assert said[0].startswith("stopped after step 8 of 15; everything is saved")  # told in the seventh


def test_trouble_of_one_process_is_one_sentence_and_no_wait(found):
    assert found["broken"]["codes"] == [2, 2]
    first, *rest = found["broken"]["lines"]
    assert first == "example 17 is broken"
    # Here the first process keeps the store, where torchrun would: once it has ended, the other speaks too.
    assert len(rest) <= 1


@pytest.mark.bad_input
def test_what_is_refused_is_refused_once(found):
    for name, words in (("refused", "is not empty"), ("flag", "--nonsense")):
        assert found[name]["codes"] == [2, 2]
        assert len(found[name]["lines"]) == 1, found[name]["lines"]
        assert words in found[name]["lines"][0]
