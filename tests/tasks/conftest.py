"""Trainings that the tests of the contract share: each case is trained once."""

import pytest
import torch

from tests.command import run
from tests.tasks.cases import CASES, in_turn


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Sums depend on how many threads share them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session", params=in_turn(CASES))
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
