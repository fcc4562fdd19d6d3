"""How loud words and their places come in: the same in training and in stepping."""

import pytest
import torch

from sightline.models.captioner import Captioner, CaptionerConfig

SIZES = {"vocab_size": 13, "image_size": 16, "patch": 8, "stem": 1, "n_convs": 1, "d_model": 12, "n_heads": 3}
SIZES |= {"n_layers": 2, "d_ff": 17, "dropout": 0.0, "max_length": 7}


@pytest.mark.parametrize(("volume", "order"), [(1.0, 1.0), (0.5, 0.1), (2.0, 0.0)])
def test_a_step_says_what_the_whole_says(volume, order):
    model = Captioner(CaptionerConfig(volume=volume, order=order, **SIZES)).double().eval()
    images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    ids = torch.randint(4, 13, (2, 5))
    whole = model(images, ids).log_softmax(-1)
    state = model.start(images)
    for t in range(5):
        log_probs, state = model.step(state, ids[:, t])
        torch.testing.assert_close(log_probs.double(), whole[:, t], rtol=1e-5, atol=1e-6)


def test_without_order_one_layer_does_not_know_it():
    sizes = SIZES | {"n_layers": 1}
    model = Captioner(CaptionerConfig(order=0.0, **sizes)).eval()
    images, ids = torch.randn(1, 3, 16, 16), torch.tensor([[1, 5, 9, 4]])
    turned = ids[:, [1, 0, 2, 3]]
    torch.testing.assert_close(model(images, ids)[:, -1], model(images, turned)[:, -1])
    loud = Captioner(CaptionerConfig(order=1.0, **sizes)).eval()
    assert not torch.allclose(loud(images, ids)[:, -1], loud(images, turned)[:, -1])


@pytest.mark.bad_input
@pytest.mark.parametrize("given", [{"volume": 0.0}, {"order": -0.5}])
def test_silence_is_refused(given):
    with pytest.raises(ValueError, match=str(next(iter(given.values())))):
        CaptionerConfig(**given)
