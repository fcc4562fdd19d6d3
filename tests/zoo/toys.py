"""Layers that attend in all ways that people write: by hand, by kernels, by stand-ins for them, not at all.

A toy is two layers of self-attention by one function, between linear layers. Its weights are known from the
formula in float64, so that a toy is an oracle of its own.
"""

import functools
import math
import warnings
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import sightline as sl
from tests.oracle.dense import matrix
from tests.oracle.scores import plain_scores
from tests.watch.flash_stand_ins import (
    FLASH,
    HUB,
    PAGED,
    VARLEN,
    band,
    flash,
    flash_in_pages,
    flash_varlen,
    flash_with_sink,
)
from tests.zoo.families import B, E, H, T

D, KV = 16, 2
LENGTHS = (T, 7)  # of the sequences of a packed batch
REAL = torch.arange(T) < torch.tensor(LENGTHS)[:, None]
CAUSAL = band(T, T, -1, 0)
WINDOW = band(T, T, 3, 0)
SLOPES = torch.tensor([0.1, 0.3, 0.5, 0.9])
DISTANCE = SLOPES[:, None, None] * (torch.arange(T)[:, None] - torch.arange(T))
SINKS = torch.tensor([0.3, -1.0, 2.0, 0.0])
PADDED = torch.zeros(B, 1, 1, T).masked_fill(~REAL[:, None, None], -torch.inf)


class SelfAttention(nn.Module):
    """Self-attention by a function of q, k and v (B, H, T, D)."""

    def __init__(self, attend, kv_heads):
        super().__init__()
        self.attend = attend
        self.q, self.k, self.v = (nn.Linear(E, n * D) for n in (H, kv_heads, kv_heads))
        self.out = nn.Linear(H * D, E)

    def heads(self, x):
        return [project(x).unflatten(-1, (-1, D)).transpose(1, 2) for project in (self.q, self.k, self.v)]

    def forward(self, x):
        return self.out(self.attend(*self.heads(x)).transpose(1, 2).flatten(2))


@dataclass(frozen=True)
class Toy:
    """A way to attend.

    Attributes:
        attend: The function, or what makes the module that is one.
        added: What is added to scores.
        options: Further ones of the oracle: scale, sink, softcap.
        kv_heads: Heads of keys and values.
        unseen: Words of the reason, where it can't be seen.
        is_packed: Whether sequences have the lengths of ``LENGTHS``.
        compiles: What of it is compiled: the ``"kernel"`` that it calls, or the ``"model"``.
    """

    attend: object
    added: torch.Tensor | None = None
    options: tuple = ()
    kv_heads: int = H
    unseen: str = ""
    is_packed: bool = False
    compiles: str = ""

    def make(self):
        """The model, and what it is called with."""
        attend = [self.attend() if isinstance(self.attend, type) else self.attend for _ in range(2)]
        model = nn.Sequential(*(SelfAttention(x, self.kv_heads) for x in attend))
        if self.compiles == "model":
            model.compile(backend="aot_eager")
        return model, {"input": torch.randn(B, T, E)}

    def weights(self, model, inputs):
        """The weights of both layers, from the formula."""
        x, found = inputs["input"], []
        for layer in model:
            q, k = (y.double() for y in layer.heads(x)[:2])
            found.append(self._of(layer.attend, q, k))
            x = layer(x)
        return found

    def _of(self, attend, q, k):
        options, k = dict(self.options), k.repeat_interleave(H // self.kv_heads, 1)
        softcap = options.pop("softcap", None)
        if isinstance(attend, nn.Module):
            options["scores"] = plain_scores("additive", attend.score, q, k)
        elif softcap is not None:
            options["scores"] = softcap * (q @ k.mT * D**-0.5 / softcap).tanh()
        return matrix(q, k, None if self.added is None else self.added.double(), **options)[0]


def by_hand(q, k, v):
    weights = (q @ k.mT / math.sqrt(D) + CAUSAL.to(q.dtype)).softmax(-1)
    return weights @ v


def by_einsum(q, k, v):
    scores = 3.0 * torch.tanh(torch.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(D) / 3.0) + DISTANCE
    return torch.einsum("bhts,bhsd->bhtd", F.softmax(scores, dim=-1, dtype=torch.float32).to(v.dtype), v)


def sinks_by_hand(q, k, v):
    sinks = SINKS.to(q.dtype)[:, None, None].expand(B, -1, T, 1)
    with_sink = torch.cat([q @ k.mT / math.sqrt(D), sinks], -1)
    return (with_sink - with_sink.amax(-1, keepdim=True)).softmax(-1)[..., :-1] @ v


def grouped(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, WINDOW == 0, enable_gqa=True)


@functools.cache
def compiled_flex():
    return torch.compile(flex_attention, backend="aot_eager")


def flex(q, k, v, attend=flex_attention):
    bias = SLOPES.to(q.dtype)
    q, k, v = (x.detach() for x in (q, k, v))  # on a CPU it has no backward pass
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of FlexAttention that is not compiled
        return attend(q, k, v, lambda s, b, h, i, j: s + bias[h] * (i - j), causal_blocks())


def flex_compiled(q, k, v):
    return flex(q, k, v, compiled_flex())


@functools.cache
def causal_blocks():
    return create_block_mask(lambda b, h, i, j: j <= i, None, None, T, T, device="cpu")


class Kernel(torch.autograd.Function):
    """A kernel that another package brings, with a backward pass of its own."""

    @staticmethod
    def forward(ctx, call, operator, formula, *qkv):
        ctx.call, ctx.formula = call, formula
        ctx.save_for_backward(*qkv)
        return call(operator, *qkv)

    @staticmethod
    def backward(ctx, gradient):
        qkv = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.enable_grad():
            out = ctx.call(ctx.formula, *qkv)
        return None, None, None, *torch.autograd.grad(out, qkv, gradient)


def kernel(operator, formula):
    """Let a function call an operator of another package: a stand-in, and its formula for gradients."""
    return lambda call: lambda q, k, v: Kernel.apply(call, operator, formula, q, k, v)


@kernel(FLASH, flash)
def by_flash(operator, q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return operator(q, k, v, 0.0, 0.3, True, 3, -1, 0.0, None, False)[0].transpose(1, 2)


@kernel(HUB, flash_with_sink)
def by_flash_with_sinks(operator, q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = operator(q, k, v, None, None, None, D**-0.5, True, -1, -1, SINKS.to(q.dtype))[0]
    return out.transpose(1, 2)


@kernel(VARLEN, flash_varlen)
def packed(operator, q, k, v):
    q, k, v = (x.transpose(1, 2)[REAL] for x in (q, k, v))
    starts = torch.tensor([0, LENGTHS[0], sum(LENGTHS)], dtype=torch.int32)
    out = operator(q, k, v, starts, starts, T, T, 0.0, 0.3, True)[0]
    return out.new_zeros(B, T, H, D).masked_scatter(REAL[..., None, None], out).transpose(1, 2)


def jagged(q, k, v):
    lengths = zip(*(x.transpose(1, 2) for x in (q, k, v)), LENGTHS, strict=True)
    parts = zip(*([x[:n] for x in item] for *item, n in lengths), strict=True)
    q, k, v = (torch.nested.as_nested_tensor(list(x), layout=torch.jagged).transpose(1, 2) for x in parts)
    out = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
    return torch.nested.to_padded_tensor(out, 0.0, (B, T, H, D)).transpose(1, 2)


def ours(q, k, v):
    return sl.attention(q, k, v, sl.masks.window(3, 0))


class Additive(nn.Module):
    """Attention by an additive score, which has parameters."""

    def __init__(self):
        super().__init__()
        self.score = sl.scores.Additive(D, D, 5)

    def forward(self, q, k, v):
        return sl.attention(q, k, v, sl.masks.causal(), score=self.score)


def linear(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return q @ (k.mT @ v) / (q @ k.sum(2)[..., None])


@kernel(PAGED, flash_in_pages)
def paged(operator, q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return operator(q, k, v, 0.3, False, torch.zeros(1, dtype=torch.int32))[0].transpose(1, 2)


TOYS = {
    "by hand, causal": Toy(by_hand, CAUSAL),
    "by einsum, softcap and bias": Toy(by_einsum, DISTANCE, (("softcap", 3.0),)),
    "by hand, sinks": Toy(sinks_by_hand, None, (("sink", SINKS),)),
    "grouped queries, a window": Toy(grouped, WINDOW, kv_heads=KV),
    "FlexAttention": Toy(flex, CAUSAL + DISTANCE),
    "FlexAttention, compiled": Toy(flex_compiled, CAUSAL + DISTANCE, compiles="kernel"),
    "a compiled model": Toy(grouped, WINDOW, kv_heads=KV, compiles="model"),
    "flash-attn": Toy(by_flash, WINDOW, (("scale", 0.3),), kv_heads=KV),
    "flash-attn of a hub, sinks": Toy(by_flash_with_sinks, CAUSAL, (("sink", SINKS),)),
    "flash-attn, packed": Toy(packed, CAUSAL + PADDED, (("scale", 0.3),), is_packed=True),
    "nested tensors, jagged": Toy(jagged, PADDED, is_packed=True),
    "sl.attention, a window": Toy(ours, WINDOW),
    "sl.attention, additive": Toy(Additive, CAUSAL),
    "linear attention": Toy(linear, unseen="no softmax over products"),
    "a paged cache": Toy(paged, unseen="pages of a cache"),
}
