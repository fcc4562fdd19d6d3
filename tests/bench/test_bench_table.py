import sys

import pytest

from sightline.bench import table
from sightline.bench.result import CostBar, Outcome, Report, Result

MACHINE = {"devices": {"cpu": "Abacus 3000"}, "threads": 7, "torch": "2.13.0", "triton": None}


@pytest.fixture
def report():
    fast = Outcome(
        case="cpu attention [forward] T=128",
        results=(
            Result(case="", contestant="sightline", milliseconds=2.0, spread=0.05, error=3e-7),
            Result(case="", contestant="torch", milliseconds=3.0, spread=0.25, error=4e-7),
        ),
        ours="sightline",
        bar=0.9,
        notes=("torch flash could not run: a, b; c",),
    )
    slow = Outcome(
        case="cpu multihead eval T=1024",
        results=(
            Result(case="", contestant="sightline", milliseconds=4.0, spread=0.0),
            Result(case="", contestant="torch, fast path off", milliseconds=3.0, spread=0.0),
        ),
        ours="sightline",
        bar=0.97,
    )
    large = Outcome(
        case="cpu memory forward",
        results=(Result(case="", contestant="sightline", peak_bytes=234_500_000),),
        ours="sightline",
        memory_bar=200_000_000,
    )
    absent = Outcome(case="cpu nobody", results=(), ours="sightline", bar=0.9)
    return Report(bench="attention", machine=MACHINE, outcomes=(fast, slow, large, absent))


@pytest.mark.parametrize("rich", [True, False])
def test_every_case_and_contestant_is_there(report, rich, monkeypatch):
    if not rich:
        for name in [name for name in sys.modules if name.split(".")[0] == "rich"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "rich", None)
    text = table.text(report)
    rows = {line.split("  ")[0]: line for line in text.splitlines()}
    for outcome in report.outcomes:
        assert outcome.case in rows
    assert "1.50" in rows["cpu attention [forward] T=128"]
    assert "0.75" in rows["cpu multihead eval T=1024"]
    assert rows["cpu multihead eval T=1024"].rstrip().endswith("SLOW")
    assert "234.5" in rows["cpu memory forward"]
    assert "LARGE" in rows["cpu memory forward"]
    assert "DID NOT RUN" in rows["cpu nobody"]
    assert text.count("sightline") == 3
    assert text.count("torch, fast path off") == 1


def test_both_ways_show_the_same_numbers(report, monkeypatch):
    assert [line.split() for line in table.text(report).splitlines()] == [
        line.split() for line in table.plain(report).splitlines()
    ]


def test_summary_counts_and_names_what_falls_short(report):
    text = table.summary(report)
    assert "1 of 4 cases stand" in text
    assert "slow: cpu multihead eval T=1024 ratio 0.75" in text
    assert "Abacus 3000; 7 threads" in text
    assert "note: torch flash could not run: a, b; c (cpu attention [forward] T=128)" in text


def test_a_cost_is_shown_for_everyone_with_its_peer_and_its_direction():
    watched = Outcome(
        case="cpu watch",
        results=tuple(
            Result(case="", contestant=name, milliseconds=time, spread=0.0)
            for name, time in (("sightline", 7.0), ("listening", 6.0), ("blind", 5.0))
        ),
        ours="sightline",
        cost_bar=CostBar(peer="blind", most=1.3),
    )
    rows = [
        line.split()
        for line in table.plain(Report(bench="watch", machine=MACHINE, outcomes=(watched,))).splitlines()
    ]
    assert rows[1][-7:] == ["1.40", "x", "blind", "at", "most", "1.30", "SLOW"]
    assert rows[2][-3:] == ["1.20", "x", "blind"]
    assert rows[3][-1] == "-"
