"""What was seen shows itself as the last line of a cell, live where anywidget is installed."""

import pytest
import torch

import sightline as sl
from sightline.show.explorer import widget
from sightline.tasks.attention import Attention
from sightline.tasks.prediction import Prediction

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def watched():
    pytest.importorskip("anywidget")
    model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with sl.watch(model, keep=True, tokens=list("abcde")) as seen:
        model(torch.randn(1, 5, 8))
    return seen


def shown(x):
    bundle = x._repr_mimebundle_(include=None, exclude=None)
    return bundle[0] if isinstance(bundle, tuple) else bundle


def test_what_was_seen_and_a_prediction_show_themselves(watched):
    attention = Attention(weights=torch.full((1, 2, 1, 3), 1 / 3), queries=("a",), keys=("x", "y", "z"))
    prediction = Prediction(input="x y z", text="a", score=0.0, attention=attention)
    for one in (watched, watched["self_attn"], prediction):
        assert VIEW in shown(one)
        assert one._display_().meta["sights"]  # marimo takes the widget itself
    assert sl.show.page(watched)._display_().meta["sights"]


def test_without_answers_or_anywidget_they_stay_as_they_were(watched, monkeypatch):
    assert shown(watched["self_attn"].forget()) == {}
    assert shown(Prediction(input="x", text="a", score=0.0)) == {}
    monkeypatch.setattr(widget.importlib.util, "find_spec", lambda name: None)
    assert shown(watched) == {}
    assert "<table>" in watched._repr_html_()
    assert watched._display_()._repr_html_() == watched._repr_html_()
    text = Prediction(input="<x>", text="a", score=0.0)._display_()._repr_html_()
    assert "input=&#x27;&lt;x&gt;&#x27;" in text
