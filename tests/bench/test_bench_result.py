import json
import math

import pytest

from sightline.bench.result import CostBar, Outcome, Report, Result


def outcome(ours=2.0, peers=(3.0, 5.0), *, errors=(1e-7, 1e-7, 1e-7), **keywords):
    names = ("sightline", "torch", "torch flash")
    results = [
        Result(case="c", contestant=name, milliseconds=time, error=error)
        for name, time, error in zip(names, (ours, *peers), errors, strict=True)
    ]
    return Outcome(case="c", results=tuple(results), ours="sightline", **({"bar": 0.97} | keywords))


def test_ratio_is_the_best_peers_time_over_ours():
    assert outcome(2.0, (3.0, 5.0)).ratio == 1.5
    assert outcome(2.0, (5.0, 1.0)).ratio == 0.5


def test_no_peer_no_ratio_and_no_fault():
    alone = Result(case="c", contestant="sightline", milliseconds=2.0)
    it = Outcome(case="c", results=(alone,), ours="sightline", bar=0.97)
    assert it.ratio is None
    assert it.faults == ()


@pytest.mark.parametrize(("ours", "faults"), [(3.0, ()), (3.09, ()), (3.1, ("slow",))])
def test_slow_is_under_the_bar(ours, faults):
    assert outcome(ours, (3.0, 5.0)).faults == faults


@pytest.mark.parametrize(
    ("error", "slack", "faults"),
    [
        (1.9e-7, 1e-12, ()),
        (2.1e-7, 1e-12, ("inexact",)),
        (2.1e-7, 1e-3, ()),
        (math.nan, 1e-3, ("inexact",)),
    ],
)
def test_inexact_is_twice_the_furthest_peers_error(error, slack, faults):
    assert outcome(errors=(error, 1e-8, 1e-7), slack=slack).faults == faults


def test_large_is_over_the_memory_bar():
    for peak, faults in ((200, ()), (201, ("large",))):
        result = Result(case="c", contestant="sightline", peak_bytes=peak)
        it = Outcome(case="c", results=(result,), ours="sightline", memory_bar=200)
        assert it.faults == faults


def test_who_could_not_run_has_a_fault():
    peer = Result(case="c", contestant="torch", milliseconds=1.0)
    assert Outcome(case="c", results=(peer,), ours="sightline", bar=0.97).faults == ("did not run",)


def test_report_is_json_even_with_nan():
    report = Report(bench="attention", machine={}, outcomes=(outcome(errors=(math.nan, 0.0, 0.0)), outcome()))
    read = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert [case["faults"] for case in read["cases"]] == [["inexact"], []]
    assert read["cases"][1]["ratio"] == 1.5
    assert read["cases"][0]["results"][0]["error"] == "nan"
    assert report.failing == report.outcomes[:1]


@pytest.mark.parametrize(("ours", "faults"), [(4.5, ()), (4.6, ("slow",))])
def test_a_cost_is_slow_over_its_bar(ours, faults):
    it = outcome(ours, (3.0, 1.0), bar=None, cost_bar=CostBar(peer="torch", most=1.5))
    assert it.cost == ours / 3.0
    assert it.faults == faults
    assert it.verdict == f"{ours / 3:.2f} x torch, at most 1.50"


def test_a_cost_without_its_peer_is_none():
    it = outcome(cost_bar=CostBar(peer="blind", most=1.5), bar=None)
    assert (it.cost, it.faults, it.verdict) == (None, (), "")


def test_a_ratio_says_its_direction_too():
    assert outcome(2.0, (3.0, 5.0)).verdict == "ratio 1.50, at least 0.97"
