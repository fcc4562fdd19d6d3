"""What the commands of a run say of one that is not as it was written."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from sightline.models.manifest import write_manifest
from tests.command import run

OLD = Path(__file__).parents[1] / "fixtures/written_by_0_1/classify/finished"

pytestmark = pytest.mark.plain


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(OLD, tmp_path / "run")
    write_manifest(tmp_path / "run")
    return tmp_path / "run"


def spoil(folder):
    weights = load_file(folder / "model.safetensors")
    weights["head.bias"][3] = torch.nan
    save_file(weights, folder / "model.safetensors")


def test_a_run_without_a_manifest_opens():
    assert not (OLD / "manifest.json").exists()
    assert run("evaluate", OLD, "--limit", 3, "--json").code == 0


def test_a_file_that_changed_is_named_and_force_opens_it(folder):
    spoil(folder)
    refused = run("evaluate", folder, "--limit", 3, "--json")
    assert (refused.code, refused.out) == (2, "")
    assert "'model.safetensors' has other bytes than were written; copy the run anew" in refused.err
    forced = run("classify", folder, OLD.parents[1] / "data/pictures/01.png", "--json", "--force")
    assert forced.code == 0
    assert "opened all the same" in forced.err
    assert forced.json["classes"]
    assert "NaN" not in forced.out


def test_weights_that_are_no_numbers_are_refused_whoever_vouches_for_them(folder):
    spoil(folder)
    write_manifest(folder)
    result = run("evaluate", folder, "--limit", 3, "--json")
    assert result.code == 2
    assert "weights must be finite numbers, 1 of 10 in 'head.bias'" in result.err
