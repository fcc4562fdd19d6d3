import math

import pytest
import torch

from sightline.bench.case import Comparison, Contestant, TimedCase, relative_error
from sightline.bench.timing import HostStopwatch, Repeats

CPU = torch.device("cpu")


def measured(setup, clock=None, *, rounds=3):
    timed = TimedCase(name="sum of primes", device=CPU, bar=0.97, setup=lambda: setup)
    watch = HostStopwatch() if clock is None else HostStopwatch(clock)
    return timed.measure(watch, Repeats(budget=1e-9, minimum=rounds, maximum=rounds))


def contestant(name, x, **keywords):
    return Contestant(name=name, run=lambda: (x,), **keywords)


def test_relative_error_is_the_largest_over_the_outputs():
    exact = [torch.tensor([3.0, 4.0]).double(), torch.tensor([0.0, 10.0]).double()]
    got = [torch.tensor([3.0, 4.05]), torch.tensor([2.0, 10.0])]
    assert relative_error(got, exact) == pytest.approx(0.2)
    got[0][0] = math.nan
    assert math.isnan(relative_error(got, exact))


def test_a_planted_error_shows_in_the_error_column_and_as_a_fault():
    exact = torch.randn(7, 11, dtype=torch.float64)
    setup = Comparison(
        contestants=(contestant("sightline", exact * 1.01), contestant("torch", exact.float())),
        exact=lambda: (exact,),
    )
    outcome = measured(setup)
    ours, theirs = outcome.results
    assert ours.error == pytest.approx(0.01)
    assert theirs.error < 1e-6
    assert "inexact" in outcome.faults


def test_ratio_comes_from_the_medians():
    seconds = [100.0]

    def taking(*each):
        left = list(each)

        def run():
            seconds[0] += left.pop(0) if len(left) > 1 else left[0]
            return (torch.ones(2),)

        return run

    # a trial comes before the laps, and is warm-up enough
    ours = Contestant(name="sightline", run=taking(9, 2, 2, 50))
    torchs = Contestant(name="torch", run=taking(9, 1, 3, 3))
    outcome = measured(Comparison(contestants=(ours, torchs)), lambda: seconds[0])
    assert [r.milliseconds for r in outcome.results] == [2000.0, 3000.0]
    assert outcome.ratio == 1.5


def test_a_peer_that_cannot_run_is_left_out_and_named():
    def refuse():
        raise RuntimeError("No available kernel. Aborting execution.\nmore lines")

    setup = Comparison(
        contestants=(contestant("sightline", torch.ones(2)), Contestant(name="torch flash", run=refuse))
    )
    outcome = measured(setup)
    assert [r.contestant for r in outcome.results] == ["sightline"]
    assert outcome.notes == ("torch flash could not run: No available kernel. Aborting execution.",)


def test_nobody_can_run():
    def refuse():
        raise torch.OutOfMemoryError("no memory")

    outcome = measured(Comparison(contestants=(Contestant(name="sightline", run=refuse),)))
    assert outcome.results == ()
    assert outcome.faults == ("did not run",)


def test_no_float64_check_says_so():
    def too_large():
        raise RuntimeError("out of memory")

    outcome = measured(Comparison(contestants=(contestant("sightline", torch.ones(2)),), exact=too_large))
    assert outcome.results[0].error is None
    assert outcome.notes == ("no float64 check: out of memory",)


def test_contestants_run_in_their_context():
    seen = []

    def run():
        seen.append(torch.is_grad_enabled())
        return (torch.ones(2),)

    setup = Comparison(
        contestants=(
            Contestant(name="sightline", run=run, context=torch.no_grad),
            Contestant(name="torch", run=run, context=torch.enable_grad),
        )
    )
    measured(setup)
    assert all(sorted(x) == [False, True] for x in zip(seen[::2], seen[1::2], strict=True))
    assert len(seen) == 8
