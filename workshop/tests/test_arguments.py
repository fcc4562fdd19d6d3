"""The table of public calls is whole, and the fuzzer of arguments sees what is wrong."""

import pytest
import torch

import sightline as sl
from workshop.fuzz.arguments import faults_of
from workshop.fuzz.public import APART, calls, public_names

pytestmark = pytest.mark.filterwarnings("ignore")


def test_every_public_name_is_fuzzed_and_every_call_is_valid(tmp_path):
    table = calls(tmp_path)
    assert public_names() - {call.name for call in table} == set(APART)
    for call in table:
        call()


def _raised(call):
    try:
        call()
    except Exception as problem:  # noqa: BLE001
        return problem
    return None


def test_whose_error_it_is():
    ours = _raised(lambda: sl.masks.window("x", 1))
    assert not faults_of(ours)
    assert "foreign" in faults_of(_raised(lambda: torch.zeros(2) @ torch.zeros(3)))[0]
    deep = _raised(lambda: sl.positions.checks.checked_real.__globals__["math"].sqrt(-1))
    assert "foreign" in faults_of(deep)[0]
