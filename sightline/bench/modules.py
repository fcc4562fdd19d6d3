"""``MultiheadAttention`` and ``TransformerEncoderLayer`` against torch's: same weights, same inputs.

In training a call is a forward and a backward pass to the input and every parameter; in eval it is a forward
pass without autograd. There torch has a second peer: itself without its whole-module fast path, which
is not always the faster of the two.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sightline.bench.case import OURS, Comparison, Contestant, TimedCase
from sightline.bench.context import combine_contexts, without_fast_path
from sightline.bench.sizes import MOST_WEIGHT_BYTES, Sizes, bar
from sightline.shapes import Float

# A hidden unit near the kink of ReLU may fall on the other side of it in float64; its gradient is then off.
_KINK = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleUse:
    """How a module is used.

    Attributes:
        module: ``multihead`` or ``encoder-layer``.
        training: With a backward pass, or in eval without autograd.
        causal: With a causal mask, its hint given.
        weights: Whether the weights, averaged over the heads, are asked for.
        dropout: Drops with this probability.
    """

    module: str
    training: bool
    causal: bool = False
    weights: bool = False
    dropout: float = 0.0

    def case_name(self, device: torch.device, length: int) -> str:
        """Name the case.

        Example:
            >>> use = ModuleUse(module="multihead", training=False, weights=True)
            >>> use.case_name(torch.device("cpu"), 128)
            'cpu multihead eval T=128 weights'
        """
        name = f"{device} {self.module} {'training' if self.training else 'eval'} T={length}"
        return name + " causal" * self.causal + " weights" * self.weights + " dropout" * (self.dropout > 0)


def uses() -> Iterator[ModuleUse]:
    """List how the modules are used."""
    for module in ("multihead", "encoder-layer"):
        for training in (True, False):
            yield ModuleUse(module=module, training=training)
            yield ModuleUse(module=module, training=training, causal=True)
            if module == "multihead":
                yield ModuleUse(module=module, training=training, weights=True)
        yield ModuleUse(module=module, training=True, dropout=0.1)  # torch's default for the layer


def cases(sizes: Sizes, length: int) -> Iterator[TimedCase]:
    """List the cases of a length."""
    for use in uses():
        yield TimedCase(
            name=use.case_name(sizes.device, length),
            device=sizes.device,
            bar=bar(length),
            setup=partial(compare_module, sizes, length, use),
        )


def compare_module(sizes: Sizes, length: int, use: ModuleUse) -> Comparison:
    """Make our module and torch's with the same weights, as contestants."""
    from sightline import nn as ours  # noqa: PLC0415 - the function's cases need no modules

    x = sizes.draw(0, sizes.batch(length), length, sizes.d_model).requires_grad_(use.training)
    upstream = sizes.draw(1, *x.shape)
    their_module = _make(nn, sizes, use)
    our_module = _make(ours, sizes, use)
    our_module.load_state_dict(their_module.state_dict())
    mask = None
    if use.causal:
        mask = nn.Transformer.generate_square_subsequent_mask(length, sizes.device, sizes.dtype)

    context = torch.enable_grad if use.training else torch.no_grad
    contestants = [
        Contestant(name=OURS, run=partial(_call, our_module, use, x, mask, upstream), context=context)
    ]
    notes = []
    if use.weights and not sizes.storable(length):
        gigabytes = sizes.weight_bytes(length) / 1e9
        notes.append(
            f"torch left out: it stores weights of {gigabytes:.1f} GB several times over, which does not fit"
            f" or is more than {MOST_WEIGHT_BYTES / 1e9:.0f} GB"
        )
    else:
        run = partial(_call, their_module, use, x, mask, upstream)
        contestants.append(Contestant(name="torch", run=run, context=context))
        if not use.training:
            slow = combine_contexts(context, without_fast_path)
            contestants.append(Contestant(name="torch, fast path off", run=run, context=slow))

    slack = _KINK if use.module == "encoder-layer" and use.training else 1e-12
    exact = None
    if use.dropout:
        notes.append("no float64 check: dropout is random")
    elif sizes.checkable(length):
        exact = partial(_exact, their_module, sizes, use, x, mask, upstream)
    else:
        notes.append("too large for a float64 check")
    return Comparison(contestants=tuple(contestants), exact=exact, slack=slack, notes=tuple(notes))


def _make(library: Any, sizes: Sizes, use: ModuleUse, dtype: torch.dtype | None = None) -> nn.Module:
    """Make the module of a library, torch's ``nn`` or ours: the constructors are the same."""
    keywords: dict[str, Any] = {
        "dropout": use.dropout,
        "batch_first": True,
        "device": sizes.device,
        "dtype": sizes.dtype if dtype is None else dtype,
    }
    with torch.random.fork_rng([sizes.device] if sizes.device.type == "cuda" else []):
        torch.manual_seed(0)
        module: nn.Module
        if use.module == "multihead":
            module = library.MultiheadAttention(sizes.d_model, sizes.n_heads, **keywords)
        else:
            module = library.TransformerEncoderLayer(
                sizes.d_model, sizes.n_heads, 4 * sizes.d_model, **keywords
            )
    return module.train(use.training)


def _call(
    module: nn.Module,
    use: ModuleUse,
    x: Float[Tensor, "B T E"],
    mask: Float[Tensor, "T T"] | None,
    upstream: Float[Tensor, "B T E"],
) -> list[Tensor]:
    """Run a module once: the output, then weights and gradients where the use has them."""
    results = []
    if use.module == "multihead":
        output, weights = module(x, x, x, need_weights=use.weights, attn_mask=mask, is_causal=use.causal)
        results = [output] if weights is None else [output, weights]
    else:
        output = module(x, src_mask=mask, is_causal=use.causal)
        results = [output]
    if use.training:
        results += torch.autograd.grad(output, [x, *module.parameters()], upstream)
    return [result.detach() for result in results]


def _exact(
    theirs: nn.Module,
    sizes: Sizes,
    use: ModuleUse,
    x: Float[Tensor, "B T E"],
    mask: Float[Tensor, "T T"] | None,
    upstream: Float[Tensor, "B T E"],
) -> list[Tensor]:
    """Run torch's module in float64, by its plain path."""
    module = _make(nn, sizes, use, torch.float64)
    module.load_state_dict(theirs.state_dict())
    x = x.detach().double().requires_grad_(use.training)
    with without_fast_path(), torch.set_grad_enabled(use.training):
        return _call(module, use, x, None if mask is None else mask.double(), upstream.double())
