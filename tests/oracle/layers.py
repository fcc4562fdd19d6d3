"""Pairs of a torch layer and ours, built alike and run alike."""

import copy
import warnings
from contextlib import contextmanager

import torch

import sightline as sl

# What torch says about a boolean and a float mask in one call, and when its encoder drops padding.
EXPECTED = ("Support for mismatched", "The PyTorch API of nested tensors is in prototype stage")


def built(module, name, *args, **kwargs):
    """Build ``module.name`` from a fixed seed, and hand back the warnings it gave."""
    torch.manual_seed(7)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        layer = getattr(module, name)(*args, **kwargs)
    return layer, [str(warning.message) for warning in caught]


def twins(name, *args, dtype=torch.float64, **kwargs):
    """The layer of torch and ours, from the same arguments and the same seed."""
    theirs, their_warnings = built(torch.nn, name, *args, dtype=dtype, **kwargs)
    ours, our_warnings = built(sl.nn, name, *args, dtype=dtype, **kwargs)
    assert our_warnings == their_warnings
    return theirs, ours


def stacks(name, layers, *args, **kwargs):
    """A stack of torch over torch's layer and one of ours over ours."""
    (theirs, _), (ours, _) = (
        built(module, name, layer, *args, **kwargs)
        for module, layer in zip((torch.nn, sl.nn), layers, strict=True)
    )
    return theirs, ours


def own(x):
    """A copy for one twin alone, so that gradients don't meet."""
    return x.detach().clone().requires_grad_(x.is_floating_point()) if isinstance(x, torch.Tensor) else x


def run(model, inputs, masks, *, backward=True):
    """Outputs, then the gradients of inputs, float masks and parameters, all by name."""
    model = copy.deepcopy(model)
    inputs = [own(x) for x in inputs]
    masks = {name: own(x) for name, x in masks.items()}
    with warnings.catch_warnings():
        for words in EXPECTED:
            warnings.filterwarnings("ignore", words)
        output = model(*inputs, **masks)
    found = {"output": output}
    if backward:
        (
            output * torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view(output.shape)
        ).sum().backward()
        named = {f"input {i}": x for i, x in enumerate(inputs)} | masks | dict(model.named_parameters())
        found |= {
            f"gradient of {name}": x.grad
            for name, x in named.items()
            if isinstance(x, torch.Tensor) and x.requires_grad
        }
    return {name: x.detach() if isinstance(x, torch.Tensor) else x for name, x in found.items()}


def same(theirs, ours, tolerance=1e-12):
    """Assert that two runs found the same."""
    assert theirs.keys() == ours.keys()
    for name in theirs:
        if theirs[name] is None or ours[name] is None:
            # torch drops a mask that a causal hint replaces; zeros and no gradient are the same then
            assert all(x is None or not x.any() for x in (theirs[name], ours[name])), name
        else:
            torch.testing.assert_close(
                ours[name],
                theirs[name],
                rtol=tolerance,
                atol=tolerance,
                msg=lambda text, name=name: f"{name}: {text}",
            )


@contextmanager
def slow_path():
    """Keep torch from its inference kernel, which reads all but zero in a float mask as *may not look*."""
    torch.backends.mha.set_fastpath_enabled(value=False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(value=True)


def worst_error(model, exact, inputs, masks):
    """How far float32 is from float64, relative to the largest number, at worst over all that a run finds."""
    found, truth = run(model, inputs, masks), run(exact, [x.double() for x in inputs], as_double(masks))
    return max(
        ((found[name].double() - truth[name]).abs().max() / truth[name].abs().max()).item()
        for name in truth
        if truth[name] is not None and truth[name].abs().max() > 1e-3
    )


def as_double(masks):
    return {
        name: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for name, x in masks.items()
    }


def causal(t, dtype=torch.float64):
    return torch.nn.Transformer.generate_square_subsequent_mask(t, dtype=dtype)


def padded(batch, length, at_end=True):
    """True at padding, as torch has it; every item keeps its first key."""
    lengths = torch.arange(batch) * 2 % length + 1
    mask = torch.arange(length) >= lengths[:, None]
    return mask if at_end else mask.flip(1)
