"""All contestants of ``bench additive`` compute the same."""

import pytest
import torch

from sightline.bench import additive
from sightline.bench.additive import AdditiveSize

CPU = torch.device("cpu")
TINY = AdditiveSize(batch=2, length=13, d_attn=5)


def test_the_cases() -> None:
    names = [case.name for case in additive.cases(CPU)]
    assert len(names) == len(set(names)) == 2 * len(additive.ON_CPU)
    assert [case.name for case in additive.cases(CPU, quick=True)] == names[:2]
    assert [c.name for c in additive.cases(CPU, sizes=(TINY,))] == [
        "cpu additive forward float32 B=2 T=13 r=5",
        "cpu additive step float32 B=2 T=13 r=5",
    ]


@pytest.mark.parametrize("backward", [False, True])
def test_the_contestants_agree(monkeypatch: pytest.MonkeyPatch, backward: bool) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)  # takes half a minute
    setup = additive.compare(CPU, torch.float32, TINY, backward=backward)
    assert [c.name for c in setup.contestants] == ["sightline", "eager", "torch.compile"]
    assert setup.exact is not None
    exact = setup.exact()
    for contestant in setup.contestants:
        with contestant.context():
            found = contestant.run()
        assert len(found) == len(exact) == (7 if backward else 1)
        for ours, truth in zip(found, exact, strict=True):
            torch.testing.assert_close(ours.double(), truth, rtol=1e-4, atol=1e-5)


def test_a_peer_that_would_need_too_much_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(additive, "_MOST_HIDDEN", 100)
    setup = additive.compare(CPU, torch.float32, TINY, backward=True)
    assert [c.name for c in setup.contestants] == ["sightline"]
    assert "no peer" in setup.notes[0]
