"""``sl.attention`` and the modules of ``sl.nn`` beside torch's: float32 on the CPU, bfloat16 on a GPU.

On a GPU the function's peers are torch's choice and each of its kernels by name: the choice is not always the
fastest. In eval a second peer of the modules is torch without its fast path for whole modules.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import sightline as sl
from benchmarks.harness import OURS, Case, Contest, draw
from benchmarks.memory import memory_case

_BACKENDS = {
    "torch cudnn": SDPBackend.CUDNN_ATTENTION,
    "torch flash": SDPBackend.FLASH_ATTENTION,
    "torch efficient": SDPBackend.EFFICIENT_ATTENTION,
}
_MOST_STORED = 20e9  # bytes of weights; a peer that stores more is left out rather than waited for
_LONG, _D, _MOST_MEMORY = 16384, 64, 200_000_000  # the cases of memory
_KINK = 1e-3  # a hidden unit near the kink of ReLU may fall on its other side in float64


class Sizes(NamedTuple):
    """What to draw: about ``tokens`` in a batch of sequences of one length."""

    lengths: tuple[int, ...] = (128, 1024, 4096)
    widths: tuple[int, ...] = (64,)
    n_heads: int = 8
    d_model: int = 512
    tokens: int = 1024
    checked: int = 1 << 24  # query-key pairs in all heads, up to which results are held against float64
    dtype: torch.dtype = torch.float32

    def batch(self, length: int) -> int:
        """Return how many sequences a batch has."""
        return min(max(1, self.tokens // length), 16)

    def pairs(self, length: int) -> int:
        """Return how many query-key pairs all heads of a batch have."""
        return self.batch(length) * self.n_heads * length**2


CPU = Sizes()
GPU = Sizes((128, 1024, 4096, 16384), (64, 128), 16, 1024, 16384, 1 << 30, torch.bfloat16)


def cases(device: torch.device, quick: bool, sizes: Sizes | None = None) -> list[Case]:
    """List the cases, shortest inputs first."""
    found: list[Case] = []
    chosen = sizes or (GPU if device.type == "cuda" else CPU)
    for length in chosen.lengths[:2] if quick else chosen.lengths:
        most = 1.03 if length >= 1024 else 1.1  # short inputs are allowed some overhead of Python's
        for d, causal, backward in product(chosen.widths, (False, True), (False, True)):
            words = f"attention {'forward+backward' if backward else 'forward'} T={length} D={d}"
            setup = partial(function, device, chosen, length, d, causal=causal, backward=backward)
            found.append(Case(name=words + " causal" * causal, most=most, setup=setup))
        for use in USES:
            setup = partial(module, device, chosen, length, **use)
            found.append(Case(name=name_of(length, **use), most=most, setup=setup))
    if device.type == "cpu" and sizes is None:
        found += _memory_cases()[: 1 if quick else None]
    return found


def function(
    device: torch.device, sizes: Sizes, length: int, d: int, *, causal: bool, backward: bool
) -> Contest:
    """Return ``sl.attention`` beside torch's function."""
    shape = (sizes.batch(length), sizes.n_heads, length, d)
    q, k, v = (draw(i, *shape, device=device, dtype=sizes.dtype).requires_grad_(backward) for i in range(3))
    upstream = draw(3, *shape, device=device, dtype=sizes.dtype)
    mask = sl.masks.causal() if causal else None

    def results(attend: Callable[..., Tensor], inputs: list[Tensor]) -> tuple[Tensor, ...]:
        output = attend(*inputs)
        grads = torch.autograd.grad(output, inputs, upstream.to(output.dtype)) if backward else ()
        return (output.detach(), *grads)

    def exact() -> tuple[Tensor, ...]:
        dense = torch.ones(length, length, dtype=torch.bool, device=device).tril() if causal else None
        with torch.set_grad_enabled(backward):
            inputs = [x.detach().double().requires_grad_(backward) for x in (q, k, v)]
            return results(lambda *x: sl.reference.scaled_dot_product_attention(*x, dense)[0], inputs)

    theirs = partial(results, partial(F.scaled_dot_product_attention, is_causal=causal), [q, k, v])
    runs = {OURS: partial(results, lambda *x: sl.attention(*x, mask), [q, k, v]), "torch": theirs}
    around = {}
    if device.type == "cuda":
        runs |= dict.fromkeys(_BACKENDS, theirs)
        around = {name: partial(sdpa_kernel, backend) for name, backend in _BACKENDS.items()}
    if sizes.pairs(length) > sizes.checked:
        return Contest(runs=runs, around=around, grad=backward, notes=("too large for a float64 check",))
    return Contest(runs=runs, around=around, grad=backward, exact=exact)


def _uses() -> Iterator[dict[str, Any]]:
    for kind, training in product(("multihead", "encoder-layer"), (True, False)):
        yield {"kind": kind, "training": training}
        yield {"kind": kind, "training": training, "causal": True}
        if kind == "multihead":
            yield {"kind": kind, "training": training, "weights": True}
        if training:
            yield {"kind": kind, "training": training, "dropout": 0.1}


USES = tuple(_uses())


def name_of(
    length: int, kind: str, training: bool, causal: bool = False, weights: bool = False, dropout: float = 0.0
) -> str:
    """Return the name of the case of a module."""
    name = f"{kind} {'training' if training else 'eval'} T={length}"
    return name + " causal" * causal + " weights" * weights + " dropout" * (dropout > 0)


def module(
    device: torch.device,
    sizes: Sizes,
    length: int,
    kind: str,
    training: bool,
    causal: bool = False,
    weights: bool = False,
    dropout: float = 0.0,
) -> Contest:
    """Return our module beside torch's with the same weights; in training with a backward pass to them."""
    shape = (sizes.batch(length), length, sizes.d_model)
    x = draw(0, *shape, device=device, dtype=sizes.dtype).requires_grad_(training)
    upstream = draw(1, *shape, device=device, dtype=sizes.dtype)
    mask = nn.Transformer.generate_square_subsequent_mask(length, device, sizes.dtype) if causal else None

    def make(library: Any, dtype: torch.dtype) -> nn.Module:
        how = {"dropout": dropout, "batch_first": True, "device": device, "dtype": dtype}
        torch.manual_seed(0)
        made = (
            library.MultiheadAttention(sizes.d_model, sizes.n_heads, **how)
            if kind == "multihead"
            else library.TransformerEncoderLayer(sizes.d_model, sizes.n_heads, 4 * sizes.d_model, **how)
        )
        return made.train(training)

    def call(made: nn.Module, dtype: torch.dtype = sizes.dtype) -> list[Tensor]:
        inputs, given = x, mask
        if dtype is not sizes.dtype:
            inputs = x.detach().to(dtype).requires_grad_(training)
            given = None if mask is None else mask.to(dtype)
        if kind == "multihead":
            found = made(inputs, inputs, inputs, need_weights=weights, attn_mask=given, is_causal=causal)
            results = [one for one in found if one is not None]
        else:
            results = [made(inputs, src_mask=given, is_causal=causal)]
        if training:
            results += torch.autograd.grad(results[0], [inputs, *made.parameters()], upstream.to(dtype))
        return [one.detach() for one in results]

    theirs, ours = make(nn, sizes.dtype), make(sl.nn, sizes.dtype)
    ours.load_state_dict(theirs.state_dict())
    runs, notes = {OURS: partial(call, ours)}, []
    stored = sizes.pairs(length) * sizes.dtype.itemsize
    if weights and stored > _MOST_STORED:
        notes.append(f"torch is left out: it stores weights of {stored / 1e9:.0f} GB several times")
    else:
        runs["torch"] = partial(call, theirs)
        if not training:
            runs["torch, fast path off"] = partial(call, theirs)

    def exact() -> list[Tensor]:
        made = make(nn, torch.float64)
        made.load_state_dict(theirs.state_dict())
        with without_fast_path(), torch.set_grad_enabled(training):
            return call(made, torch.float64)

    checked = not dropout and sizes.pairs(length) <= sizes.checked
    if not checked:
        notes.append("no float64 check: dropout is random" if dropout else "too large for a float64 check")
    return Contest(
        runs=runs,
        exact=exact if checked else None,
        slack=_KINK if training and kind == "encoder-layer" else 1e-12,
        grad=training,
        around={"torch, fast path off": without_fast_path},
        notes=tuple(notes),
    )


@contextmanager
def without_fast_path() -> Iterator[None]:
    """Switch off the kernels that run torch's modules as a whole in eval."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _memory_cases() -> list[Case]:
    """Memory of long attention on the CPU: linear in the length, where the matrix would be quadratic."""
    matrix = f"the matrix in float32 takes {4 * _LONG**2 / 1e6:.0f} MB"
    here = partial(memory_case, target="benchmarks.attention:long", most=_MOST_MEMORY, note=matrix)
    return [
        here(f"memory forward T={_LONG} D={_D} causal", backward=False, padded=False),
        here(f"memory forward+backward T={_LONG} D={_D} causal", backward=True, padded=False),
        here(f"memory forward T={_LONG} D={_D} causal padded", backward=False, padded=True),
    ]


def long(backward: bool, padded: bool, length: int = _LONG) -> Callable[[], object]:
    """Return a call of attention on a long sequence; what torch sets up at first use is not counted."""

    def ready(t: int) -> Callable[[], object]:
        q, k, v = (
            draw(i, 1, 1, t, _D, device=torch.device("cpu")).requires_grad_(backward) for i in range(3)
        )
        mask = sl.masks.causal()
        mask = mask & sl.masks.padding(torch.tensor([t - 1])) if padded else mask

        def run() -> object:
            output = sl.attention(q, k, v, mask)
            return torch.autograd.grad(output.sum(), (q, k, v)) if backward else output

        return run

    ready(64)()
    return ready(length)
