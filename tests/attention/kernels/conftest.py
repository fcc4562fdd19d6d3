"""The interpreter, where there is no GPU, without what it does twice."""

import pytest

from tests.interpreter import interpret_fast


@pytest.fixture(autouse=True, scope="session")
def _fast():
    interpret_fast()
