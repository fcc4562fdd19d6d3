"""What every doctest may use without importing it, and a fixed seed for all tests."""

import pytest
import torch

import sightline as sl


@pytest.fixture(autouse=True)
def _names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace.update(torch=torch, nn=torch.nn, sl=sl)
    torch.manual_seed(0)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the kernels out under the shape hook: it rewrites functions whose source Triton must read."""
    if not config.getoption("jaxtyping_packages", None):
        return
    kernels = [item for item in items if "kernels" in item.path.parts]
    config.hook.pytest_deselected(items=kernels)
    items[:] = [item for item in items if item not in kernels]
