"""A watched model and CUDA graphs: capturing is refused in a sentence, before and after it all is well."""

import pytest
import torch
from torch import nn

import sightline as sl
from sightline.watch import session

E, H, B, T = 16, 2, 3, 7
SENTENCE = "can't be captured into a CUDA graph.*; capture it outside the block"


@pytest.mark.bad_input
@pytest.mark.parametrize("need_weights", [True, False])
def test_capturing_is_refused(monkeypatch, need_weights):
    model, x = nn.MultiheadAttention(E, H, batch_first=True), torch.randn(B, T, E)
    with sl.watch(model) as seen:
        with monkeypatch.context() as capturing:
            capturing.setattr(session, "_capturing", lambda: True)
            with pytest.raises(RuntimeError, match=SENTENCE):
                model(x, x, x, need_weights=need_weights)
        model(x, x, x, need_weights=need_weights)
    assert len(seen.calls("")) == 1


def test_what_is_not_measured_may_be_captured(monkeypatch):
    model, x = nn.MultiheadAttention(E, H, batch_first=True), torch.randn(B, T, E)
    monkeypatch.setattr(session, "_capturing", lambda: True)
    with sl.watch(model, layers="other") as seen:
        model(x, x, x)
    assert len(seen) == 0


@pytest.mark.gpu
def test_a_graph():
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    model = nn.MultiheadAttention(E, H, batch_first=True, device="cuda").eval()
    x = torch.randn(B, T, E, device="cuda")

    def run():
        return model(x, x, x, need_weights=False)[0]

    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            run()
        torch.cuda.current_stream().wait_stream(side)
        with (
            pytest.warns(UserWarning, match="an attention"),
            sl.watch(model),
            pytest.raises(RuntimeError, match=SENTENCE),
            torch.cuda.graph(torch.cuda.CUDAGraph()),
        ):
            run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = run()
        with sl.watch(model) as seen:
            graph.replay()
            assert len(seen) == 0  # a replay calls nothing
            watched = run()
        torch.testing.assert_close(out, watched, rtol=1e-5, atol=1e-5)
        assert seen.names() == [""]
