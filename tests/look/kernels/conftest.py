"""The kernels run on a GPU where there is one, and by Triton's interpreter elsewhere: the same tests."""

import importlib.util
import os

import pytest
import torch

from tests.interpreter import interpret_fast

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before the kernels are imported


@pytest.fixture(autouse=True, scope="session")
def _fast():
    interpret_fast()


@pytest.fixture
def device():
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed here; the plain path is tested elsewhere")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def half(device):
    """The interpreter has no bfloat16."""
    return torch.bfloat16 if device.type == "cuda" else torch.float16
