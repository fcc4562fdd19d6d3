"""Short calls are bound by Python: how many of its functions a watched call makes, layer by layer.

They are counted in a process of its own, with one thread: where anything has been compiled calls are read in
another way, and which tests compile before these depends on the order.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sightline as sl

pytestmark = pytest.mark.plain  # the shape hook makes calls of its own

T, WIDTH, HEADS = 128, 16, 2
FEW, MANY = 3, 11  # layers: their difference leaves out what a block costs


class Fused(nn.Module):
    """Calls torch's function, and nothing else."""

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x)


class Projected(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.attention = kind(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


def python_calls(run: Callable[[], Any]) -> int:
    """How many Python functions are called."""
    n = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal n
        n += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return n


def calls_per_layer(make: Callable[[], nn.Module], shape: tuple[int, ...], **options: Any) -> float:
    counts = []
    for n_layers in (FEW, MANY):
        model = nn.Sequential(*(make() for _ in range(n_layers))).eval()
        x = torch.randn(shape, requires_grad="grad" in options)

        def run(model: nn.Module = model, x: Tensor = x) -> None:
            with torch.set_grad_enabled("grad" in options), sl.watch(model, **options):
                model(x)

        run()  # what is found out once
        run()
        counts.append(python_calls(run))
    return (counts[1] - counts[0]) / (MANY - FEW)


CASES: dict[str, tuple[type[nn.Module] | None, dict[str, Any], float]] = {
    "fused": (None, {}, 163),
    "kept": (None, {"keep": True}, 183),
    "with gradients": (None, {"grad": True}, 476),
    "torch.nn": (nn.MultiheadAttention, {}, 263),
    "sl.nn": (sl.nn.MultiheadAttention, {}, 258),
}


def count(kind: type[nn.Module] | None, options: dict[str, Any]) -> float:
    make = Fused if kind is None else lambda: Projected(kind)
    shape = (2, HEADS, T, WIDTH) if kind is None else (2, T, WIDTH)
    return calls_per_layer(make, shape, **options)


@pytest.fixture(scope="module", name="counts")
def _counts() -> dict[str, float]:
    command = [sys.executable, "-m", __name__]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    counts: dict[str, float] = json.loads(done.stdout)
    return counts


@pytest.mark.parametrize("case", CASES)
def test_a_watched_call_makes_no_more_python_calls_than_it_did(case: str, counts: dict[str, float]) -> None:
    assert 0 < counts[case] <= CASES[case][2]


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = {name: count(kind, options) for name, (kind, options, _) in CASES.items()}
    sys.stdout.write(json.dumps(found))
