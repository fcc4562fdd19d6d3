"""The contestants of ``bench train`` for classification are the same model."""

import sys
import types
from dataclasses import replace

import pytest
import torch

from sightline.bench import train_classify
from sightline.bench.case import OURS
from sightline.bench.timing import Repeats, stopwatch
from sightline.models.vit import VisionTransformer, VisionTransformerConfig

CONFIG = VisionTransformerConfig(
    n_classes=5, image_size=6, patch=3, d_model=12, n_heads=3, n_layers=2, d_ff=17
)


@pytest.fixture
def tiny(monkeypatch):
    sizes = types.MappingProxyType({"mini": train_classify.SIZES["micro"]})
    monkeypatch.setattr(train_classify, "SIZES", sizes)


def test_the_peer_on_torch_computes_the_same():
    ours = VisionTransformer(CONFIG)
    torch.nn.init.normal_(ours.head.weight)
    theirs = train_classify._vit_with_torch_layers(CONFIG, ours.state_dict())
    assert {type(layer) for layer in theirs.layers} == {torch.nn.TransformerEncoderLayer}
    images = torch.randn(2, 3, 6, 6)
    torch.testing.assert_close(theirs(images), ours(images), rtol=1e-4, atol=1e-5)


def test_every_contestant_steps_and_the_rate_is_told(tiny):
    (case,) = train_classify.cases(torch.device("cpu"), quick=True)
    case = replace(case, timed=replace(case.timed, setup=_compare), examples=(3, "images"))
    outcome = case.measure(stopwatch(torch.device("cpu")), Repeats(budget=0.05))
    names = [result.contestant for result in outcome.results]
    assert names[:2] == [OURS, "torch.nn"]
    assert outcome.ratio is not None
    assert "images/s" in outcome.notes[-1]


def _compare():
    small = VisionTransformerConfig(n_classes=5, image_size=6, patch=3)
    return train_classify._compare("mini", small, 3, torch.device("cpu"))


def test_timm_takes_part_where_it_is(monkeypatch):
    given = {}

    class TimmVisionTransformer(torch.nn.Module):
        def __init__(self, **options):
            super().__init__()
            given.update(options)

    module = types.ModuleType("timm.models.vision_transformer")
    module.VisionTransformer = TimmVisionTransformer
    for name in ("timm", "timm.models"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "timm.models.vision_transformer", module)
    assert isinstance(train_classify._timm_vit(CONFIG), TimmVisionTransformer)
    assert given["embed_dim"] == 12
    assert given["mlp_ratio"] * 12 == pytest.approx(17)
    assert given["depth"] == 2


def test_without_timm_it_is_left_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm.models.vision_transformer", None)
    assert train_classify._timm_vit(CONFIG) is None
