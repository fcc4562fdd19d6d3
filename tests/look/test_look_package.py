"""``sl.look`` is a function to call and a package to import from."""

import inspect
import subprocess
import sys

import torch

import sightline as sl
import sightline.look.heads
from sightline.look.look import look


def test_the_package_is_called_like_its_function():
    q, k, v = torch.randn(3, 2, 3, 5, 7)
    assert sl.look(q, k, v, sl.masks.causal(), keep=False).received.equal(
        look(q, k, v, sl.masks.causal(), keep=False).received
    )
    assert inspect.signature(sl.look) == inspect.signature(look)


def test_nothing_hides_its_modules():
    import sightline.look.flow as flow

    assert sl.look.heads is sightline.look.heads is sys.modules["sightline.look.heads"]
    assert sl.look.flow is flow
    assert callable(sl.look.heads.head_table)


def test_in_a_fresh_interpreter():
    code = "import sightline, sightline.look.heads as heads; assert sightline.look.heads is heads"
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603
