"""Hypothesis without a clock, and signals for the tests that send them: machines differ in both."""

import pytest
from hypothesis import HealthCheck, settings

from tests.signals import own_signals

settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.fixture(name="own_signals")
def _own_signals():
    with own_signals():
        yield
