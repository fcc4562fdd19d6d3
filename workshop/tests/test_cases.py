"""However many processes share the cases of a fuzzer, they are the same, and none is lost."""

import os
import signal
import time

import pytest

from workshop.fuzz.__main__ import shared
from workshop.fuzz.cases import Cases
from workshop.fuzz.report import Report

pytestmark = [
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def _handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def fuzz(cases, place):
    """Every case fails, and says what was drawn for it, and by whom."""
    report = Report(cases.name, cases.seed)
    for number, chance in cases:
        time.sleep(0.001)  # or one process takes them all before the next is there
        report.add(f"{number:03d} {chance.random()}", "drawn", ["for the test"])
        report.outcomes[f"by {os.getpid()}"] += 1
    return report


def test_processes_share_the_cases_of_one():
    alone = shared(fuzz, Cases("some", 3, count=101))
    assert len(set(alone.failures)) == 101
    among = shared(fuzz, Cases("some", 3, count=101), jobs=3)
    assert f"by {os.getpid()}" not in among.outcomes
    assert among.failures == alone.failures
    assert (among.name, among.seed) == ("some", 3)
    assert shared(fuzz, Cases("some", 4, count=101)).failures != alone.failures
    assert shared(fuzz, Cases("other", 3, count=101)).failures != alone.failures


def test_a_process_that_dies_is_a_failure():
    def dying(cases, place):
        first, _ = next(cases)
        if first == 0:
            os._exit(7)
        if first == 1:
            raise LookupError("of the fuzzer")
        return fuzz(cases, place)

    report = shared(dying, Cases("some", 3, count=50), jobs=3)
    assert any("died, 7" in failure for failure in report.failures)
    assert any("LookupError: of the fuzzer" in failure for failure in report.failures)
    assert len(report.failures) == 2 + 47


def test_a_signal_ends_all_of_them_and_leaves_the_counts():
    def stopping(cases, place):
        report = Report(cases.name, cases.seed)
        for number, _ in cases:
            time.sleep(0.001)
            report.add(number, "done")
            if number == 20:
                os.kill(os.getppid(), signal.SIGTERM)
        return report

    report = shared(stopping, Cases("some", 3), jobs=2)
    assert report.count >= 20
    assert not report.failures


def test_time_is_up():
    assert shared(fuzz, Cases("some", 3, seconds=0.0)).count == 0
