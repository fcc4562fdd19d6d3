"""``sightline check``, and what the commands of a run say of one that is not as it was."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.command import run

OLD = Path(__file__).parents[1] / "fixtures/written_by_0_1/classify/finished"

pytestmark = pytest.mark.plain


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(OLD, tmp_path / "run")
    assert run("check", tmp_path / "run", "--write").code == 0
    return tmp_path / "run"


def spoil(folder):
    weights = load_file(folder / "model.safetensors")
    weights["head.bias"][3] = torch.nan
    save_file(weights, folder / "model.safetensors")


def test_a_run_that_is_as_it_was(folder):
    said = f"{folder}: a run of kind 'classify'; 3 files, 13574 bytes, as they were written\n"
    assert run("check", folder) == (0, said, "")
    found = run("check", folder, "--json").json
    assert found == {"kind": "classify", "files": 3, "bytes": 13574, "problems": []}


def test_a_run_that_nothing_vouches_for():
    result = run("check", OLD)
    assert result.code == 2
    assert "has no manifest.json, so nothing tells whether" in result.err
    assert run("evaluate", OLD, "--limit", 3, "--json").code == 0


def test_a_file_that_changed_is_named_and_force_opens_it(folder):
    spoil(folder)
    assert run("check", folder).err == "'model.safetensors' has other bytes than were written\n"
    refused = run("evaluate", folder, "--limit", 3, "--json")
    assert (refused.code, refused.out) == (2, "")
    assert "'model.safetensors' has other bytes than were written; copy the run anew" in refused.err
    forced = run("classify", folder, OLD.parents[1] / "data/pictures/01.png", "--json", "--force")
    assert forced.code == 0
    assert "opened all the same" in forced.err
    assert forced.json["classes"]
    assert "NaN" not in forced.out


def test_weights_that_are_no_numbers_are_a_problem_whoever_vouches_for_them(folder):
    spoil(folder)
    result = run("check", folder, "--write")
    assert result.code == 2
    assert "weights must be finite numbers, 1 of 10 in 'head.bias'" in result.err


def test_what_is_no_run(tmp_path):
    assert run("check", tmp_path, "--write").code == 2
    assert not list(tmp_path.iterdir())
