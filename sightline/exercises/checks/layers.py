"""Exercises 5 to 8: positions, self-attention, many heads, a Transformer's layer."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.exercises.checks.mechanism import drawn
from sightline.exercises.exercise import Exercise, Mistake, Probe
from sightline.exercises.keys import e05_positions, e06_self_attention, e07_many_heads, e08_transformer_layer

__all__ = ["EXERCISES"]


# 5: positions


def _positions() -> list[Probe]:
    words, table = drawn(11, (2, 5, 6), (5, 6))
    return [
        Probe(name="PositionalEncoding", init=(4, 3), method="get_encoding"),
        Probe(name="PositionalEncoding", init=(32, 64), method="get_encoding"),
        Probe(
            name="PositionalEncoding",
            init=(128, 10),
            method="get_encoding",
            about="(the homework's size)",
        ),
        Probe(name="add_positional_encoding", args=(words, table)),
        Probe(name="rotation", args=(1.0, math.pi / 2)),
        Probe(name="rotation", args=(0.3, 7.0)),
    ]


class _Table(e05_positions.PositionalEncoding):
    def angles(self, power: float = 1.0, first: int = 0) -> Tensor:
        rates = 10000.0 ** -(power * torch.arange(0, self.d_model, 2) / self.d_model)
        return torch.arange(first, first + self.max_len)[:, None] * rates


class _Swapped(_Table):
    def get_encoding(self) -> Tensor:
        return torch.stack([self.angles().cos(), self.angles().sin()], dim=-1).flatten(1)


class _Halves(_Table):
    def get_encoding(self) -> Tensor:
        return torch.cat([self.angles().sin(), self.angles().cos()], dim=-1)


class _FromOne(_Table):
    def get_encoding(self) -> Tensor:
        return torch.stack([self.angles(first=1).sin(), self.angles(first=1).cos()], dim=-1).flatten(1)


class _HalfPower(_Table):
    def get_encoding(self) -> Tensor:
        return torch.stack([self.angles(0.5).sin(), self.angles(0.5).cos()], dim=-1).flatten(1)


class _DoublePower(_Table):
    def get_encoding(self) -> Tensor:
        columns = torch.arange(self.d_model)
        angles = torch.arange(self.max_len)[:, None] / 10000.0 ** (2 * columns / self.d_model)
        return torch.where(columns % 2 == 0, angles.sin(), angles.cos())


class _NotShared(_Table):
    def get_encoding(self) -> Tensor:
        columns = torch.arange(self.d_model)
        angles = torch.arange(self.max_len)[:, None] / 10000.0 ** (columns / self.d_model)
        return torch.where(columns % 2 == 0, angles.sin(), angles.cos())


POSITIONS = Exercise(
    number=5,
    title="positions as waves, and the rotation that shifts them",
    key=e05_positions,
    probes=_positions,
    mistakes=(
        Mistake("sine and cosine are swapped: even columns have the sine", {"PositionalEncoding": _Swapped}),
        Mistake(
            "sines and cosines take turns: columns 2i and 2i + 1, not one half each",
            {"PositionalEncoding": _Halves},
        ),
        Mistake("positions begin at 0, not at 1", {"PositionalEncoding": _FromOne}),
        Mistake(
            "the exponent is 2i / d_model, and here it is i / d_model", {"PositionalEncoding": _HalfPower}
        ),
        Mistake(
            "i counts the pairs: columns 2i and 2i + 1 share one frequency; here i is the column",
            {"PositionalEncoding": _DoublePower},
        ),
        Mistake(
            "columns 2i and 2i + 1 share one frequency; here each column has its own",
            {"PositionalEncoding": _NotShared},
        ),
        Mistake(
            "this moves back by phi, or moves the pair [cos, sin]: look at the signs of the two sines",
            {"rotation": lambda omega, phi: e05_positions.rotation(omega, -phi)},
        ),
    ),
)


# 6: self-attention


class _Order(e06_self_attention.SelfAttention):
    def __init__(self, d_in: int, d_k: int, d_v: int) -> None:
        nn.Module.__init__(self)
        self.Wv = nn.Linear(d_in, d_v)
        self.Wk, self.Wq = nn.Linear(d_in, d_k), nn.Linear(d_in, d_k)


class _KeyFirst(e06_self_attention.SelfAttention):
    def __init__(self, d_in: int, d_k: int, d_v: int) -> None:
        nn.Module.__init__(self)
        self.Wk, self.Wq = nn.Linear(d_in, d_k), nn.Linear(d_in, d_k)
        self.Wv = nn.Linear(d_in, d_v)


class _NoRoot(e06_self_attention.SelfAttention):
    def forward(self, X: Tensor) -> Tensor:  # noqa: N803
        return torch.softmax(self.Wq(X) @ self.Wk(X).mT, dim=-1) @ self.Wv(X)


class _NoBias(e06_self_attention.SelfAttention):
    def __init__(self, d_in: int, d_k: int, d_v: int) -> None:
        nn.Module.__init__(self)
        self.Wq, self.Wk = nn.Linear(d_in, d_k, bias=False), nn.Linear(d_in, d_k, bias=False)
        self.Wv = nn.Linear(d_in, d_v, bias=False)


def _self_attention() -> list[Probe]:
    (x,) = drawn(13, (2, 5, 7))
    return [
        Probe(
            name="SelfAttention",
            seed=40,
            init=(32, 512, 64),
            args=(torch.ones(20, 5, 32),),
            about="(the homework's input, after torch.manual_seed(40))",
        ),
        Probe(name="SelfAttention", seed=1, init=(7, 3, 11), args=(x,), about="(after torch.manual_seed(1))"),
        Probe(name="unshuffled", args=(x[:1, :, :2], torch.tensor([3, 0, 4, 1, 2]))),
    ]


SELF_ATTENTION = Exercise(
    number=6,
    title="self-attention as a module",
    key=e06_self_attention,
    probes=_self_attention,
    mistakes=(
        Mistake("make the linear layers in the order query, key, value", {"SelfAttention": _Order}),
        Mistake("make the linear layers in the order query, key, value", {"SelfAttention": _KeyFirst}),
        Mistake("the scores are not divided by the root of d_k", {"SelfAttention": _NoRoot}),
        Mistake("the homework's linear layers have biases", {"SelfAttention": _NoBias}),
        Mistake(
            "that shuffles a second time; order.argsort() undoes it",
            {"unshuffled": lambda y, order: y[:, order]},
        ),
        Mistake("the words are still shuffled", {"unshuffled": lambda y, _: y}),
    ),
)


# 7: many heads


class _HeadsFirst(e07_many_heads.MultiHeadSelfAttention):
    def __init__(self, d_in: int, d_k: int, d_v: int, num_heads: int) -> None:
        nn.Module.__init__(self)
        widths = d_in, d_k // num_heads, d_v // num_heads
        self.heads = nn.ModuleList(e07_many_heads.SelfAttention(*widths) for _ in range(num_heads))
        self.Wo = nn.Linear(d_v, d_v)


class _Wide(e07_many_heads.MultiHeadSelfAttention):
    def __init__(self, d_in: int, d_k: int, d_v: int, num_heads: int) -> None:
        nn.Module.__init__(self)
        self.heads = nn.ModuleList(e07_many_heads.SelfAttention(d_in, d_k, d_v) for _ in range(num_heads))
        self.Wo = nn.Linear(num_heads * d_v, d_in)


class _NotMixed(e07_many_heads.MultiHeadSelfAttention):
    def forward(self, X: Tensor) -> Tensor:  # noqa: N803
        return torch.cat([head(X) for head in self.heads], dim=-1)


def _by_hand(q: Tensor, k: Tensor, v: Tensor, w_in: Tensor, w_out: Tensor, *, how: str) -> Any:
    if how == "not transposed":
        w_in, w_out = torch.cat([w.T for w in w_in.chunk(3)]), w_out.T
    if how == "no output":
        w_out = torch.eye(len(w_out))
    scale = len(w_out) ** 0.25 if how == "no root" else 1.0
    first, second, third = w_in.chunk(3)
    return e07_many_heads.manual_attention(q, k, v, torch.cat([scale * first, scale * second, third]), w_out)


def _many_heads() -> list[Probe]:
    q, k, v, w_in, w_out = drawn(17, (5, 4), (5, 4), (5, 4), (12, 4), (4, 4))
    (small,) = drawn(19, (2, 5, 7))
    return [
        Probe(
            name="MultiHeadSelfAttention",
            seed=3,
            init=(7, 6, 10, 2),
            args=(small,),
            about="(after torch.manual_seed(3))",
        ),
        Probe(
            name="MultiHeadSelfAttention",
            seed=40,
            draw=(32, 10, 256),
            init=(256, 512, 64, 8),
            about="(as the homework, after torch.manual_seed(40))",
        ),
        Probe(name="manual_attention", args=(q, k, v, w_in, w_out), about="(the homework's sizes)"),
    ]


MANY_HEADS = Exercise(
    number=7,
    title="many heads, and torch's module by hand",
    key=e07_many_heads,
    probes=_many_heads,
    parts={"manual_attention": ("output", "attention")},
    mistakes=(
        Mistake("make the last linear layer before the heads", {"MultiHeadSelfAttention": _HeadsFirst}),
        Mistake(
            "each head takes an equal share of the width: d_k / num_heads and d_v / num_heads",
            {"MultiHeadSelfAttention": _Wide},
        ),
        Mistake("the last linear layer is missing", {"MultiHeadSelfAttention": _NotMixed}),
        Mistake(
            "torch multiplies by the transposed weights: Q @ W_q.T",
            {"manual_attention": lambda *args: _by_hand(*args, how="not transposed")},
        ),
        Mistake(
            "the last projection, W_out, is missing",
            {"manual_attention": lambda *args: _by_hand(*args, how="no output")},
        ),
        Mistake(
            "the scores are not divided by the root of d",
            {"manual_attention": lambda *args: _by_hand(*args, how="no root")},
        ),
    ),
)


# 8: an encoder layer


def _layer_weights(d_model: int, d_ff: int, heads: int) -> dict[str, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(23)
        layer = nn.TransformerEncoderLayer(d_model, heads, d_ff, batch_first=True)
        state = {name: tensor.detach().clone() for name, tensor in layer.state_dict().items()}
        return {name: x + 0.1 * torch.randn_like(x) for name, x in state.items()}


def _layer() -> list[Probe]:
    (x,) = drawn(29, (5, 6))
    return [
        Probe(name="encoder_layer", args=(x, _layer_weights(6, 11, 1), 1), about="(one head)"),
        Probe(name="encoder_layer", args=(x, _layer_weights(6, 11, 3), 3), about="(three heads)"),
        Probe(name="count_parameters", args=(4, 8)),
        Probe(name="count_parameters", args=(512, 2048), about="(the size of the paper)"),
    ]


def _layer_otherwise(x: Tensor, weights: dict[str, Tensor], num_heads: int, *, how: str) -> Tensor:
    width = (x.shape[-1],)
    norms = [(weights[f"norm{n}.weight"], weights[f"norm{n}.bias"]) for n in (1, 2)]

    def attend(x: Tensor) -> Tensor:
        qkv = F.linear(x, weights["self_attn.in_proj_weight"], weights["self_attn.in_proj_bias"]).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (num_heads, -1)).transpose(0, 1) for part in qkv)
        scale = 1.0 if how == "no root" else None
        if how == "whole root":
            scale = x.shape[-1] ** -0.5
        mixed = F.scaled_dot_product_attention(q, k, v, scale=scale).transpose(0, 1).flatten(-2)
        if how == "no out":
            return mixed
        return F.linear(mixed, weights["self_attn.out_proj.weight"], weights["self_attn.out_proj.bias"])

    def feed(x: Tensor) -> Tensor:
        hidden = F.linear(x, weights["linear1.weight"], weights["linear1.bias"])
        hidden = hidden if how == "no relu" else F.relu(hidden)
        return F.linear(hidden, weights["linear2.weight"], weights["linear2.bias"])

    if how == "norm first":
        x = x + attend(F.layer_norm(x, width, *norms[0]))
        return x + feed(F.layer_norm(x, width, *norms[1]))
    kept = 0.0 if how == "no residual" else 1.0
    x = F.layer_norm(kept * x + attend(x), width, *norms[0])
    return F.layer_norm(kept * x + feed(x), width, *norms[1])


def _layer_mistake(hint: str, how: str) -> Mistake:
    return Mistake(hint, {"encoder_layer": lambda *args: _layer_otherwise(*args, how=how)})


LAYER = Exercise(
    number=8,
    title="a Transformer's layer from its state dict",
    key=e08_transformer_layer,
    probes=_layer,
    mistakes=(
        _layer_mistake("add what went in before each norm (the residual connections)", "no residual"),
        _layer_mistake("here the norm comes after the sum, not before attention", "norm first"),
        _layer_mistake("the relu between the two linear layers is missing", "no relu"),
        _layer_mistake("the heads' outputs go through self_attn.out_proj before they are added", "no out"),
        _layer_mistake("the scores are not divided by the root of a head's width", "no root"),
        _layer_mistake("the root is of a head's width, E / num_heads, not of E", "whole root"),
        Mistake("count the biases as well as the matrices", {
            "count_parameters": lambda e, f: 4 * e * e + 2 * e * f + 4 * e,
        }),
        Mistake("two norms have a weight and a bias each: 4 * d_model numbers more", {
            "count_parameters": lambda e, f: 4 * e * e + 4 * e + 2 * e * f + f + e,
        }),
    ),
)  # fmt: skip

EXERCISES = (POSITIONS, SELF_ATTENTION, MANY_HEADS, LAYER)
