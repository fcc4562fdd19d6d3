"""Trainings that the tests of the contract share: each case is trained once."""

import pytest
import torch

from tests.command import run
from tests.tasks.cases import CASES


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Sums depend on how many threads share them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# Another model of a task; `make test` has it as a run of 0.1 that goes on, and in test_translate_commands.py.
LONG = {"translate-recurrent"}


@pytest.fixture(
    scope="session",
    params=[pytest.param(x, marks=[pytest.mark.long] if x.name in LONG else [], id=x.name) for x in CASES],
)
def case(request):
    """Every task in turn."""
    return request.param


@pytest.fixture(scope="session")
def trained(case, tmp_path_factory):
    """A training on an embedded set: its folder, and what the command wrote. Not to be changed."""
    folder = tmp_path_factory.mktemp(case.name) / "run"
    result = run(*case.train(folder))
    assert result.code == 0, result.err
    return folder, result
