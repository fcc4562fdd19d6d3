"""The models of ``bench watch``: watched, listened to and blind they compute the same."""

import pytest
import torch

from sightline.bench import watch
from sightline.bench.result import CostBar
from sightline.bench.watch_models import ModelUse

CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", ["encoder", "BERT", "Llama"])
def test_every_contestant_computes_the_same(kind: str) -> None:
    use = ModelUse(kind=kind, batch=2, tokens=13, n_layers=2, d_model=128)
    setup = watch.compare(CPU, use)
    outputs = {}
    for contestant in setup.contestants:
        with contestant.context():
            outputs[contestant.name] = contestant.run()[0]
    assert list(outputs) == ["sightline", "listening", "blind"]
    assert outputs["blind"].shape == (2, 13, 128)
    for output in outputs.values():
        torch.testing.assert_close(output, outputs["blind"], rtol=1e-5, atol=1e-5)


def test_eager_is_asked_for_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_EAGER_TOKENS", {"cpu": 13})
    use = ModelUse(kind="Llama", batch=2, tokens=13, n_layers=3, d_model=128)
    eager = watch.compare(CPU, use).contestants[-1]
    with eager.context():
        output, *received = eager.run()
    assert eager.name == "eager"
    assert output.shape == (2, 13, 128)
    assert [x.shape for x in received] == [(2, 1, 13)] * 3
    torch.testing.assert_close(received[0].sum(-1), torch.full((2, 1), 13.0))


def test_the_cases_and_the_most_they_may_cost() -> None:
    most = {case.name: case.cost for case in watch.cases(torch.device("cuda"))}
    assert len(most) == 3 + 10
    assert all(cost.peer == "blind" for cost in most.values())
    assert most["cuda watch Llama 1 x 4096"] == CostBar(peer="blind", most=1.35)
    assert most["cuda watch Llama 1 x 65536"] == CostBar(peer="blind")
    assert most["cuda watch BERT 8 x 512"] == CostBar(peer="blind", most=1.5)
    on_cpu = {case.name: case.cost for case in watch.cases(CPU)}
    assert on_cpu["cpu watch encoder 1 x 128"] == CostBar(peer="blind", most=1.4)
