"""The error rates of a translator that learned next to nothing, and on planted attention."""

import json
from unittest import mock

import pytest
import torch

import sightline as sl
from workshop.figures import alignment_error as script
from workshop.figures.alignment import alignment_error_rate, read_links

# Made by hand; "3 May 1979" is written as a year, a month and a day.
PAIRS = [("3 May 1979", "1979 05 03"), ("May 3, 1979", "1979 05 03")]
GOLD = ["0-2 1-1 2-0", "0-1 1-2 2?0"]


@pytest.fixture(scope="module", params=["transformer", "recurrent"])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / request.param
    settings = {
        "steps": 2,
        "n_train": 32,
        "n_val": 8,
        "n_test": 8,
        "tensorboard": False,
        "device": "cpu",
        "model": request.param,
    }
    sl.tasks.train("translate", data="dates", out=folder, shown=False, **settings)
    return folder


def test_a_table_for_both_steps_of_every_layer(run, tmp_path):
    pairs, gold, out = tmp_path / "pairs", tmp_path / "gold", tmp_path / "out.json"
    pairs.write_text("\n".join(map(" ||| ".join, [*PAIRS, ("1", "1")])), encoding="utf-8")
    gold.write_text("\n".join(GOLD), encoding="utf-8")
    table = script.main([str(run), "--pairs", str(pairs), "--gold", str(gold), "--out", str(out)])
    assert set(table.pop("diagonal").values()) == {1 - 2 / 11}  # of six links one is right: 1-1 of the first
    assert table
    for row in table.values():
        assert row.keys() == {"writes", "reads"}
        assert all(0 <= error <= 1 for error in row.values())
    written = json.loads(out.read_text())
    assert written.pop("pairs") == 2
    assert written["aer"].pop("diagonal")
    assert written == {"aer": table}


def test_the_step_after_reads_what_was_written():
    """Attention that is right one step late: an error in writing, none in reading."""
    late = torch.eye(3)[[1, 2, 1, 0]]  # what steps 0 ... 3 look at, for the first pair
    layers = {"cross": torch.stack([late, torch.ones(4, 3) / 3])}  # the second head looks everywhere
    with mock.patch.object(script, "cross_attention", return_value=(layers, [0, 1, 2], [0, 1, 2])):
        found = script.predicted_links(None, PAIRS[:1])
    gold = [read_links(GOLD[0])]
    for head in (0, None):  # their mean has the same largest weights
        assert alignment_error_rate(found["cross", head, "reads"], gold) == 0
        assert alignment_error_rate(found["cross", head, "writes"], gold) == 1
    assert alignment_error_rate(found["cross", 1, "reads"], gold) > 0


def test_the_best_head_is_chosen_by_the_first_pairs_and_measured_on_the_others():
    right, wrong = {(0, 0)}, {(0, 1)}
    gold = [read_links("0-0")] * 3
    found = {
        ("cross", None, "writes"): [wrong, wrong, right],
        ("cross", 0, "writes"): [right, wrong, right],
        ("cross", 1, "writes"): [wrong, right, right],
    }
    found |= {(name, head, "reads"): links for (name, head, _), links in list(found.items())}
    table = script.error_table(found, gold, 1)
    assert table == {
        "cross": {"writes": 0.5, "reads": 0.5},
        "cross head 0": {"writes": 0.5, "reads": 0.5},
    }
