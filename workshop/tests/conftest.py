"""The settings of Hypothesis and the fixtures of the other tests."""

from tests.conftest import _own_signals
from tests.serve.conftest import open_client

__all__ = ["_own_signals", "open_client"]
