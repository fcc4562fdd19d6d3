"""Both contestants of ``bench look`` see the same, and the cases are the ones the chapter tells of."""

import pytest
import torch

from sightline.bench import look
from sightline.bench.sizes import Sizes

CPU = torch.device("cpu")
TINY = Sizes(device=CPU, lengths=(128,), n_heads=2, d_model=8, memory_length=None)


def test_the_cases() -> None:
    names = [case.name for case in look.cases(CPU)]
    assert len(names) == len(set(names)) == 2 * 2 * 2 + 1 + 3
    assert "cpu look beside eager T=4096 D=64 causal" in names
    assert "cpu memory of a look T=32768 D=64" in names
    assert [c.name for c in look.cases(CPU, sizes=TINY)][-1] == "cpu watch encoder T=512"


@pytest.mark.parametrize("causal", [False, True])
def test_eager_and_the_look_see_the_same(causal: bool) -> None:
    field = look.field_of(TINY, 128, "eager", causal=causal)
    assert field.exact is not None
    exact = field.exact()
    for contestant in field.contestants:
        with contestant.context():
            seen = contestant.run()
        assert len(seen) == len(exact) == 5
        for ours, truth in zip(seen, exact, strict=True):
            torch.testing.assert_close(ours.double(), truth, rtol=1e-5, atol=1e-6)


def test_the_blind_kernel_gives_the_same_output() -> None:
    field = look.field_of(TINY, 128, "blind", causal=True)
    outputs = []
    for contestant in field.contestants:
        with contestant.context():
            outputs.append(contestant.run()[0])
    assert torch.equal(*outputs)


def test_a_watched_encoder_gives_what_it_gives_blind() -> None:
    field = look.watched_field(TINY)
    outputs = []
    for contestant in field.contestants:
        with contestant.context():
            outputs.append(contestant.run()[0])
    torch.testing.assert_close(*outputs)


def test_a_long_look_is_ready_to_run() -> None:
    assert look.long_look(97)().s == 97
