"""Public calls answer as they did before the package was rebuilt; see ``tests/golden/recorded.py``."""

import pytest
import torch
from safetensors import safe_open

from tests.golden.recorded import CALLS, HERE, N_CALLS, answers, name_of

TOLERANCE = {  # what a sum in another order may change; of half precision the last digit
    torch.float64: (1e-9, 1e-9),
    torch.float32: (1e-5, 2e-6),
    torch.float16: (1e-3, 1e-4),
    torch.bfloat16: (8e-3, 1e-3),
    torch.int64: (0, 0),
    torch.bool: (0, 0),
}


@pytest.fixture(scope="module")
def recorded():
    with safe_open(HERE, "pt") as file:
        yield file


@pytest.mark.parametrize("call", CALLS, ids=name_of)
def test_a_call_answers_as_it_did(call, recorded):
    found = answers(call)
    assert found
    for i, answer in enumerate(found):
        expected = recorded.get_tensor(f"{name_of(call)}/{i}")
        assert answer.dtype == expected.dtype
        rtol, atol = TOLERANCE[answer.dtype]
        torch.testing.assert_close(answer.detach(), expected, rtol=rtol, atol=atol, equal_nan=True)


def test_every_answer_belongs_to_a_call(recorded):
    assert len(CALLS) == N_CALLS
    assert {name.rpartition("/")[0] for name in recorded.keys()} == {name_of(x) for x in CALLS}  # noqa: SIM118
