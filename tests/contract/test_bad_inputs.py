"""Bad input is refused in one sentence: tables of calls and command lines, a module for each room."""

import re
import traceback
import warnings
from pathlib import Path

import pytest
import torch

from tests.command import run
from tests.contract import (
    bad_attention,
    bad_cli,
    bad_edit,
    bad_look,
    bad_nn,
    bad_positions,
    bad_watch,
)
from tests.contract.names import contract
from tests.golden.written import no_more_than_written

PACKAGE = Path(__file__).parents[2] / "sightline"
ROOMS = (bad_attention, bad_look, bad_watch, bad_edit, bad_positions, bad_nn)
ROWS = {name: row for room in ROOMS for name, row in room.BAD.items()}
LONGEST = 300
DROP_INS = ("sl.nn.Transformer", "sl.nn.MultiheadAttention")  # say what torch's classes of these names say
LATER = (
    "sl.Measure.",  # what a subclass defines
    "sl.measures.",
    "sl.models.",
    "sl.show.",
    "sl.tasks.",
    "sl.train.",
    "sl.open_run",
    "sl.textbook.",
)  # rooms without a table


@pytest.fixture(autouse=True)
def _as_it_was():
    """Nothing of torch's is left changed by a call that fails."""
    before = torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype()
    yield
    assert (torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype()) == before


@pytest.mark.parametrize("name", ROWS)
def test_refused_in_one_sentence(name):
    call, kind, *words = ROWS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(kind) as caught:
            call()
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < LONGEST
    assert [word for word in words if word not in text] == [], text
    raised = Path(traceback.extract_tb(caught.value.__traceback__)[-1].filename)
    assert PACKAGE in raised.parents, f"raised by {raised}"


@pytest.mark.parametrize("name", bad_cli.CLI)
def test_refused_by_the_command_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    typed, *words = bad_cli.CLI[name]
    done = run(*typed)
    sentence = re.sub(r"\s+", " ", done.err).strip()
    assert done.code == 2
    assert done.out == ""
    assert "Traceback" not in done.err
    assert [word for word in words if word not in sentence] == [], sentence
    assert list(tmp_path.iterdir()) == []


def arguments():
    """Every argument of every public function, as the rows name them: ``sl.look(keep)``."""
    for name, entry in contract().items():
        members = {"": entry} if isinstance(entry, str) else entry
        for member, signature in members.items():
            full = f"{name}.{member}" if member else name
            if signature.startswith("(") and not full.startswith((*DROP_INS, *LATER)):
                flat = re.sub(r"\([^()]*\)", "", signature[1:-1])  # without what is inside a default
                names = re.findall(r"(?:^|, )\*{0,2}(\w+)", flat)
                yield from (f"{full}({x})" for x in names if x not in {"self", "cls", "args", "kwargs"})


def test_an_argument_without_a_row_is_none_that_is_new():
    covered = {name.partition(":")[0] for name in ROWS}
    every = set(arguments())
    assert len(every) > 150
    no_more_than_written("no_row_yet.json", every - covered)


def test_a_row_names_what_there_is():
    """Each row is of an argument, or of a member, that the contract has."""
    known = {x.partition("(")[0] for x in arguments()}
    known |= {
        f"{name}.{member}"
        for name, entry in contract().items()
        if isinstance(entry, dict)
        for member in entry
    }
    of_blocks = {"Watch.__enter__", "Edit.__enter__", "sl.masks.as_mask"}
    assert {name.partition("(")[0] for name in ROWS} - known - of_blocks == set()
