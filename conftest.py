"""What every doctest may use without importing it, and a fixed seed for all tests."""

import pytest
import torch

import sightline as sl


@pytest.fixture(autouse=True)
def _names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace.update(torch=torch, nn=torch.nn, sl=sl)
    torch.manual_seed(0)
