"""Ours and torch's module side by side: inputs, masks, outputs and gradients."""

import copy
import warnings

import torch
from torch import nn

import sightline as sl

B, T, S, E, H, K, V = 3, 5, 7, 10, 2, 11, 13


def twins(*args, dtype=torch.float64, **kwargs):
    """Torch's module and ours, from the same arguments and the same seed."""
    both = []
    for module in (nn, sl.nn):
        torch.manual_seed(7)
        both.append(module.MultiheadAttention(*args, dtype=dtype, **kwargs))
    for x in both:  # torch starts these at zero, where a mistake would not show
        for bias in (x.in_proj_bias, x.out_proj.bias):
            if bias is not None:
                bias.data = torch.linspace(-1, 1, len(bias), dtype=dtype)
    return both


def laid(x, batch_first=True, batched=True):
    return x[0] if not batched else x if batch_first else x.transpose(0, 1)


def own(x):
    return x.detach().clone().requires_grad_(x.is_floating_point()) if isinstance(x, torch.Tensor) else x


def run(module, inputs, call, *, backward=True):
    """Output, weights, and the gradients of inputs, float masks and parameters through both, by name."""
    module, call = copy.deepcopy(module), {name: own(x) for name, x in call.items()}
    copies = {id(x): own(x) for x in inputs}  # what was one tensor stays one
    inputs = [copies[id(x)] for x in inputs]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Support for mismatched")
        output, weights = module(*inputs, **call)
    found = {"output": output, "weights": weights}
    if backward:
        spread = lambda x: (x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view(x.shape)).sum()  # noqa: E731
        (spread(output) + (0 if weights is None else spread(weights))).backward()
        named = {f"input {i}": x for i, x in enumerate(inputs)} | call | dict(module.named_parameters())
        found |= {
            f"gradient of {name}": x.grad
            for name, x in named.items()
            if isinstance(x, torch.Tensor) and x.requires_grad
        }
    return found


def same(theirs, ours, tolerance=1e-12):
    assert theirs.keys() == ours.keys()
    for name in theirs:
        if theirs[name] is None or ours[name] is None:  # torch drops a mask that a causal hint replaces
            assert all(
                x is None or (name.startswith("gradient") and not x.any()) for x in (theirs[name], ours[name])
            )
        else:
            torch.testing.assert_close(
                ours[name],
                theirs[name],
                rtol=tolerance,
                atol=tolerance,
                msg=lambda text, name=name: f"{name}: {text}",
            )


def draw(*lengths_and_widths, dtype=torch.float64):
    return [torch.randn(B, *shape, dtype=dtype) for shape in lengths_and_widths]


def some_mask(kind):
    """Of each kind one, in torch's polarity; every query keeps the first key."""
    may_not = torch.rand(T, S) < 0.4
    may_not[:, 0] = False
    each = torch.rand(B * H, T, S) < 0.4
    each[..., 0] = False
    return {
        "none": None,
        "bool": may_not,
        "bool each": each,
        "float": torch.randn(T, S, dtype=torch.float64).masked_fill(may_not, -torch.inf),
        "float each": torch.randn(B * H, T, S, dtype=torch.float64),
    }[kind]


def some_padding(kind):
    padding = torch.arange(S) >= torch.tensor([S, 1, 3])[:B, None]
    return {
        "none": None,
        "bool": padding,
        "float": torch.randn(B, S, dtype=torch.float64).masked_fill(padding, -torch.inf),
    }[kind]
