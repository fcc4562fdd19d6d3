"""What a training gives its model is what it was; see ``tests/golden/batches.py``."""

import json

import pytest
import torch

from tests.golden.batches import CASES, HERE, seen

KEPT = json.loads((HERE / "batches.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", CASES)
def test_a_model_is_given_what_it_was(name, tmp_path):
    found = seen(name, tmp_path / "run")
    assert found.keys() == KEPT[name].keys()
    for part, expected in KEPT[name].items():
        if part == "notes" or part.startswith("order"):
            assert found[part] == expected, part
        else:
            assert len(found[part]) == len(expected), part
            for one, other in zip(found[part], expected, strict=True):
                assert one == pytest.approx(other, rel=1e-4, abs=2e-3), part


def test_every_case_is_kept():
    assert KEPT.keys() == CASES.keys()
