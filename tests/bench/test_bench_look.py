"""Both contestants of ``bench look`` see the same, and the cases are the ones the chapter tells of."""

import pytest
import torch

from sightline.bench import look, look_gpu
from sightline.bench.case import TimedCase
from sightline.bench.eager import eager
from sightline.bench.result import CostBar
from sightline.bench.sizes import Sizes
from sightline.bench.timing import HostStopwatch, Repeats

CPU = torch.device("cpu")
TINY = Sizes(device=CPU, lengths=(128,), n_heads=2, d_model=8, memory_length=None)


def test_the_cases() -> None:
    names = [case.name for case in look.cases(CPU)]
    assert len(names) == len(set(names)) == 2 * 2 * 2 + 5 + 7 + 3
    assert "cpu look beside eager T=4096 D=64 causal" in names
    assert "cpu memory of a look T=32768 D=64" in names
    bars = {case.name: (case.bar, case.cost) for case in look.cases(CPU, sizes=TINY)}
    assert bars["cpu look beside blind T=128 D=64"] == (None, CostBar(peer="blind", most=3.0))
    assert bars["cpu look beside eager T=128 D=64"] == (2.0, None)


@pytest.mark.parametrize("causal", [False, True])
def test_eager_and_the_look_see_the_same(causal: bool) -> None:
    setup = look.compare(TINY, 128, "eager", causal=causal)
    assert setup.exact is not None
    exact = setup.exact()
    for contestant in setup.contestants:
        with contestant.context():
            seen = contestant.run()
        assert len(seen) == len(exact) == 5
        for ours, truth in zip(seen, exact, strict=True):
            torch.testing.assert_close(ours.double(), truth, rtol=1e-5, atol=1e-6)


def test_the_blind_kernel_gives_the_same_output() -> None:
    setup = look.compare(TINY, 128, "blind", causal=True)
    outputs = []
    for contestant in setup.contestants:
        with contestant.context():
            outputs.append(contestant.run()[0])
    assert torch.equal(*outputs)


def test_a_long_look_is_ready_to_run() -> None:
    assert look.long_look(97)().s == 97


@pytest.mark.parametrize("causal", [False, True])
def test_on_a_gpu_what_is_seen_is_held_against_float64(causal: bool) -> None:
    shape = look_gpu.Shape(2, 3, 192, 8)
    setup = look_gpu.compare("look", "blind and eager", shape, causal, CPU)
    assert [c.name for c in setup.contestants] == ["sightline", "blind", "eager"]
    assert [c.checked is None for c in setup.contestants] == [False, True, False]
    assert setup.exact is not None
    q, k, v = shape.draw(CPU)
    right = [x[:1, :1] for x in eager(q.double(), k.double(), v.double(), 64, causal=causal)[1:]]
    for ours, truth in zip(setup.exact(), right, strict=True):
        torch.testing.assert_close(ours, truth, rtol=1e-12, atol=1e-15)
    timed = TimedCase(name="tiny", device=CPU, bar=None, setup=lambda: setup)
    outcome = timed.measure(HostStopwatch(), Repeats(budget=1e-9, minimum=2, maximum=2))
    errors = {r.contestant: r.error for r in outcome.results}
    assert errors["sightline"] < 1e-5 < errors["eager"]  # which stores weights in bfloat16
    assert errors["blind"] is None


def test_the_map_of_uneven_cells_is_held_against_float64() -> None:
    setup = look_gpu.compare("look", "blind", look_gpu.Shape(1, 2, 131, 8), True, CPU)
    assert setup.exact is not None
    ours = setup.contestants[0]
    assert ours.checked is not None
    with ours.context():
        seen = ours.checked(ours.run())
    for got, truth in zip(seen, setup.exact(), strict=True):
        torch.testing.assert_close(got.double(), truth, rtol=1e-5, atol=1e-6)


def test_the_cases_on_a_gpu() -> None:
    cases = {case.name: case for case in look_gpu.cases(torch.device("cuda"))}
    everything_and_rows, maps, others, plot, beside_torch = 2 * 2 * 4, 2 * 3, 2 * 3, 7, 4 + 8
    assert len(cases) == everything_and_rows + maps + others + plot + beside_torch
    assert "cuda look beside blind and eager B=1 H=16 T=65536 D=128 causal" in cases
    for name, most in {
        "look beside blind B=4 H=16 T=4096 D=64": 1.85,
        "look beside blind B=1 H=4 T=65536 D=128 causal": 1.55,
        "look beside blind B=2 H=8 T=5003 D=128": 2.0,
        "rows only beside blind B=1 H=16 T=16384 D=128": 1.5,
        "training received beside blind B=1 H=16 T=16384 D=128 causal": 1.7,
    }.items():
        assert cases[f"cuda {name}"].cost == CostBar(peer="blind", most=most)
    assert cases["cuda top 8 beside everything B=1 H=16 T=16384 D=128"].cost == CostBar(
        peer="everything", most=1.2
    )
    assert cases["cuda multihead eval T=16384 weights"].bar == 1.0
    assert cases["cuda attention forward+backward T=128 D=64 causal"].bar == 0.95
