"""Both contestants of ``bench look`` see the same, and the cases are the ones the chapter tells of."""

import pytest
import torch

from sightline.bench import look, look_gpu
from sightline.bench.case import TimedCase
from sightline.bench.eager import eager
from sightline.bench.sizes import Sizes
from sightline.bench.timing import HostStopwatch, Repeats

CPU = torch.device("cpu")
TINY = Sizes(device=CPU, lengths=(128,), n_heads=2, d_model=8, memory_length=None)


def test_the_cases() -> None:
    names = [case.name for case in look.cases(CPU)]
    assert len(names) == len(set(names)) == 2 * 2 * 2 + 1 + 5 + 7 + 3
    assert "cpu look beside eager T=4096 D=64 causal" in names
    assert "cpu memory of a look T=32768 D=64" in names
    assert [c.name for c in look.cases(CPU, sizes=TINY)][-1] == "cpu watch encoder T=512"


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


def test_a_watched_encoder_gives_what_it_gives_blind() -> None:
    setup = look.compare_watched(TINY)
    outputs = []
    for contestant in setup.contestants:
        with contestant.context():
            outputs.append(contestant.run()[0])
    torch.testing.assert_close(*outputs)


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


def test_the_cases_on_a_gpu() -> None:
    names = [case.name for case in look_gpu.cases(torch.device("cuda"))]
    assert len(names) == len(set(names)) == 2 * 5 + 7 + 2 * 4
    assert "cuda look beside blind and eager B=1 H=16 T=65536 D=128 causal" in names
