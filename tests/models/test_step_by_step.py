"""Models that are decoded step by step say what they say of the whole sequence at once."""

import pytest
import torch

import sightline as sl

SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 2, "d_ff": 12}
SOURCE = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0], [7, 7, 7, 2, 0]])
TARGET = torch.tensor([[1, 5, 6, 7, 3, 4, 9], [1, 9, 3, 3, 8, 5, 4], [1, 4, 4, 5, 6, 7, 8]])


def far(model):
    """Double weights, further from the beginning, where all words are nearly as likely."""
    model = model.double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.7)
    return model


def translator(**changes):
    torch.manual_seed(3)
    sizes = {"source_vocab_size": 11, "vocab_size": 11, **SIZES, **changes}
    return far(sl.models.Translator(sl.models.TranslatorConfig(**sizes))), SOURCE


def captioner(**changes):
    torch.manual_seed(3)
    config = sl.models.CaptionerConfig(vocab_size=11, image_size=16, patch=8, **SIZES, **changes)
    return far(sl.models.Captioner(config)), torch.randn(3, 3, 16, 16, dtype=torch.float64)


MODELS = {"translator": translator, "captioner": captioner}


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_steps_are_the_whole(name, look):
    model, inputs = MODELS[name]()
    with torch.no_grad():
        whole = model(inputs, TARGET).log_softmax(-1)
        state = model.start(inputs, look=look)
        for t in range(TARGET.size(1)):
            log_probs, state = model.step(state, TARGET[:, t])
            torch.testing.assert_close(log_probs, whole[:, t], rtol=1e-9, atol=1e-9)
            if look:
                sums = state.attention_weights.sum(-1)
                torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("name", MODELS)
def test_rows_that_change_places_take_their_past_along(name):
    model, inputs = MODELS[name]()
    rows = torch.tensor([2, 0, 0, 1])
    with torch.no_grad():
        whole = model(inputs[rows], TARGET[rows]).log_softmax(-1)
        state = model.start(inputs)
        for t in range(3):
            _, state = model.step(state, TARGET[:, t])
        state = state.select(rows)
        for t in range(3, TARGET.size(1)):
            log_probs, state = model.step(state, TARGET[rows, t])
            torch.testing.assert_close(log_probs, whole[:, t], rtol=1e-9, atol=1e-9)


def test_steps_have_the_gradients_of_the_whole():
    model, inputs = translator()
    weight = next(model.parameters())
    upstream = torch.linspace(-1, 1, 3 * 5 * 11, dtype=torch.float64).view(3, 5, 11)
    whole = (model(inputs, TARGET[:, :5]).log_softmax(-1) * upstream).sum()
    state, steps = model.start(inputs), []
    for t in range(5):
        log_probs, state = model.step(state, TARGET[:, t])
        steps.append(log_probs)
    in_steps = (torch.stack(steps, 1) * upstream).sum()
    (expected,), (found,) = (torch.autograd.grad(x, [weight]) for x in (whole, in_steps))
    assert expected.abs().max() > 0
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
