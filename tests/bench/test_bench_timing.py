import gc
from contextlib import contextmanager

import pytest
import torch

from sightline.bench.timing import (
    HostStopwatch,
    Repeats,
    cuda_peak_bytes,
    median_and_spread,
    stopwatch,
    time_interleaved,
)


class FakeTime:
    """A clock that moves when it is told to."""

    def __init__(self):
        self.seconds = 100.0

    def __call__(self):
        return self.seconds

    def taking(self, *seconds):
        """A run that takes these times in turn, the last one for ever after."""
        left = list(seconds)

        def run():
            self.seconds += left.pop(0) if len(left) > 1 else left[0]

        return run


@contextmanager
def nothing():
    yield


def test_contestants_take_turns_and_the_warm_up_is_not_counted():
    clock, order = FakeTime(), []

    def named(name, run):
        def noted():
            order.append(name)
            assert not gc.isenabled()
            run()

        return noted, nothing

    runs = {
        "a": named("a", clock.taking(9.0, 1.0, 2.0, 3.0)),
        "b": named("b", clock.taking(9.0, 5.0, 7.0, 5.0)),
    }
    laps = time_interleaved(runs, HostStopwatch(clock), Repeats(budget=1.0))
    rounds = list(zip(order[::2], order[1::2], strict=True))
    assert all(sorted(x) == ["a", "b"] for x in rounds)
    assert len(rounds) == 4
    assert laps == {"a": [1000.0, 2000.0, 3000.0], "b": [5000.0, 7000.0, 5000.0]}
    assert gc.isenabled()


def test_every_contestant_runs_first_and_last():
    """Short calls feel who ran before them."""
    clock, order = FakeTime(), []
    runs = {name: (lambda name=name: order.append(name) or clock.taking(1.0)(), nothing) for name in "abc"}
    time_interleaved(runs, HostStopwatch(clock), Repeats(budget=150.0))
    rounds = list(zip(*(order[i::3] for i in range(3)), strict=True))
    for place in range(3):
        counts = [sum(x[place] == name for x in rounds) for name in "abc"]
        assert min(counts) > len(rounds) / 5, counts


def test_context_is_entered_outside_the_lap():
    clock = FakeTime()

    @contextmanager
    def slow_to_enter():
        clock.seconds += 50
        yield
        clock.seconds += 50

    laps = time_interleaved(
        {"a": (clock.taking(1.0), slow_to_enter)}, HostStopwatch(clock), Repeats(budget=1.0)
    )
    assert laps == {"a": [1000.0] * 3}


def test_rounds_fill_the_budget():
    clock = FakeTime()
    laps = time_interleaved({"a": (clock.taking(0.25), nothing)}, HostStopwatch(clock), Repeats(budget=5.0))
    assert len(laps["a"]) == 20


def test_median_and_spread_against_the_definition():
    times = torch.rand(37, dtype=torch.float64).tolist()
    median, spread = median_and_spread(times)
    low, middle, high = torch.tensor(times, dtype=torch.float64).quantile(
        torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    )
    assert median == pytest.approx(middle.item())
    assert spread == pytest.approx(((high - low) / middle).item())
    assert median_and_spread([3.0]) == (3.0, 0.0)


def test_stopwatch_of_the_cpu_times_what_was_run():
    watch = stopwatch(torch.device("cpu"))
    ran = []
    lap = watch.lap(lambda: ran.append(1))
    watch.synchronize()
    assert ran == [1]
    assert lap() >= 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_times_and_peak():
    device = torch.device("cuda")
    watch = stopwatch(device)
    x = torch.randn(2048, 2048, device=device)
    lap = watch.lap(lambda: x @ x)
    watch.synchronize()
    assert lap() > 0
    assert 16_000_000 < cuda_peak_bytes(lambda: x + x, device) < 18_000_000


@pytest.mark.parametrize(("trial_seconds", "calls"), [(0.0, 4), (1.9, 4), (2.1, 3)])
def test_a_long_trial_was_warm_up_enough(trial_seconds, calls):
    clock, seen = FakeTime(), []
    run = clock.taking(1.0)
    runs = {"a": (lambda: (seen.append(1), run()), nothing)}
    laps = time_interleaved(runs, HostStopwatch(clock), Repeats(budget=1.0), trial_seconds=trial_seconds)
    assert len(laps["a"]) == 3
    assert len(seen) == calls
