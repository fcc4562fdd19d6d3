from pathlib import Path

import pytest
import torch

from sightline.bench.memory import MemoryCase, fresh_peak_bytes
from sightline.bench.timing import HostStopwatch, Repeats

MEGABYTE = 1_000_000


def allocates(megabytes):
    """What the fresh process measures: the inputs are not counted, what the call makes is."""
    held = torch.ones(30 * MEGABYTE, dtype=torch.uint8)

    def call():
        torch.ones(megabytes * MEGABYTE, dtype=torch.uint8)  # dropped at once: the peak keeps it
        return held

    return call


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    return "test_bench_memory"


def test_peak_of_a_fresh_process_is_what_the_call_allocates(here):
    peak = fresh_peak_bytes(f"{here}:allocates", {"megabytes": 53})
    assert 50 * MEGABYTE < peak < 70 * MEGABYTE


def test_a_process_that_fails_is_named_in_the_notes():
    case = MemoryCase(
        name="m",
        targets={"sightline": "sightline.bench.linear:nobody"},
        arguments={},
        memory_bar=1,
        notes=("a note",),
    )
    outcome = case.measure(HostStopwatch(), Repeats(budget=1.0))
    assert outcome.results == ()
    assert outcome.faults == ("did not run",)
    assert outcome.notes[0] == "a note"
    assert "nobody" in outcome.notes[1]
