"""Valid calls of the mechanism (attention, masks, scores, positions, the documents' names) and the look."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

import sightline as sl
from sightline.look.flow import received_flow, relevance, rollout
from sightline.look.groups import read_groups
from sightline.look.heads import head_table, sharpest
from workshop.fuzz.public_call import Call


class _Toy(nn.Module):
    """A model that attends twice, by torch's kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.MultiheadAttention(6, 2, batch_first=True)
        self.second = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.first(x, x, x, need_weights=False)[0]
        return x + self.second(x, x, x, need_weights=False)[0]


def mechanism_calls(q: Any, k: Any, v: Any) -> list[Call]:
    qkv = {"q": q, "k": k, "v": v}
    allowed = torch.rand(5, 7) < 0.7
    optional = {"mask": allowed, "score": "dot", "scale": 0.5}
    masks, scores = sl.masks, sl.scores
    return [
        Call("attention", sl.attention, {**qkv, **optional, "dropout_p": 0.0}),
        Call(
            "attention", sl.attention, {**qkv, "mask": None, "score": None, "scale": None, "dropout_p": 0.0}
        ),
        Call("look", sl.look, {**qkv, **optional, "measure": sl.Look(), "keep": True}),
        Call("Look", sl.Look, {"received": True, "entropy": True, "peak": True, "map": (2, 3), "top": 2}),
        Call(
            "reference.scaled_dot_product_attention",
            sl.reference.scaled_dot_product_attention,
            {**qkv, "mask": allowed},
        ),
        Call("masks.causal", masks.causal, {"align": "end"}),
        Call("masks.window", masks.window, {"left": 2, "right": 1, "align": "start"}),
        Call("masks.padding", masks.padding, {"lengths": torch.tensor([3, 7])}),
        Call("masks.padding", masks.padding, {"lengths": [3, 7]}),
        Call("masks.dense", masks.dense, {"allowed": allowed}),
        Call("masks.bias", masks.bias, {"added": torch.randn(5, 7)}),
        Call("masks.from_ones", masks.from_ones, {"mask": allowed.float()}),
        Call("masks.as_mask", masks.as_mask, {"mask": allowed}),
        Call("Mask.dense", masks.causal().dense, {"t": 3, "s": 5, "device": "cpu"}),
        Call("Mask.__and__", masks.causal().__and__, {"other": masks.window(1, 1)}),
        Call("scores.General", scores.General, {"d_q": 4, "d_k": 4}),
        Call("scores.LowRank", scores.LowRank, {"d_q": 4, "d_k": 4, "rank": 2}),
        Call("scores.Additive", scores.Additive, {"d_q": 4, "d_k": 4, "d_attn": 3}),
        *(
            Call(f"scores.{type(score).__name__}.forward", score, {"q": q, "k": k})
            for score in (scores.Dot(), scores.Cosine(), scores.General(4, 4), scores.Additive(4, 4, 3))
        ),
        Call("scores.named", scores.named, {"score": "cosine"}),
        Call("nn.SelfAttention", sl.nn.SelfAttention, {"d_in": 6, "d_k": 4, "d_v": 3, "bias": True}),
        Call(
            "nn.MultiHeadSelfAttention",
            sl.nn.MultiHeadSelfAttention,
            {"d_in": 6, "d_k": 4, "d_v": 6, "num_heads": 2},
        ),
        Call(
            "nn.SelfAttention.forward",
            sl.nn.SelfAttention(4, 4, 3),
            {"x": q[0], "mask": torch.ones(5, 5) > 0},
        ),
        Call(
            "nn.MultiHeadSelfAttention.forward",
            sl.nn.MultiHeadSelfAttention(4, 4, 6, 2),
            {"x": q[0], "mask": None},
        ),
    ]


def position_calls() -> list[Call]:
    p, device = sl.positions, {"dtype": torch.float32, "device": "cpu"}
    return [
        Call("positions.sinusoidal", p.sinusoidal, {"length": 5, "d_model": 4, "base": 100.0, **device}),
        Call(
            "positions.sinusoidal_2d",
            p.sinusoidal_2d,
            {"height": 2, "width": 3, "d_model": 8, "base": 100.0, **device},
        ),
        Call("positions.shift_matrix", p.shift_matrix, {"offset": 2, "d_model": 4, "base": 100.0, **device}),
        Call(
            "positions.SinusoidalPositions",
            p.SinusoidalPositions,
            {"d_model": 4, "max_length": 7, "base": 100.0},
        ),
        Call("positions.SinusoidalPositions2d", p.SinusoidalPositions2d, {"d_model": 8, "base": 100.0}),
        Call("positions.LearnedPositions", p.LearnedPositions, {"max_length": 7, "d_model": 4, **device}),
        Call("positions.RelativeBias2d", p.RelativeBias2d, {"n_heads": 2, "grid": (2, 3)}),
        Call("positions.Rotary", p.Rotary, {"d_head": 4, "base": 100.0}),
        Call("positions.SinusoidalPositions.forward", p.SinusoidalPositions(4), {"x": torch.randn(2, 5, 4)}),
        Call("positions.LearnedPositions.forward", p.LearnedPositions(7, 4), {"x": torch.randn(2, 5, 4)}),
        Call(
            "positions.SinusoidalPositions2d.forward",
            p.SinusoidalPositions2d(8),
            {"x": torch.randn(2, 3, 5, 8)},
        ),
        Call(
            "positions.Rotary.forward",
            p.Rotary(4),
            {"q": torch.randn(2, 3, 5, 4), "k": torch.randn(2, 3, 5, 4), "offset": 2},
        ),
        Call(
            "positions.Rotary.rotate",
            p.Rotary(4).rotate,
            {"x": torch.randn(2, 3, 5, 4), "positions": torch.arange(5)},
        ),
    ]


def seed_calls(q: Any, k: Any, v: Any) -> list[Call]:
    s = sl.textbook
    of_three = {"Q": q[0], "K": k[0], "V": v[0]}
    return [
        Call("seeds.PositionalEncoding", s.PositionalEncoding, {"d_model": 4, "max_len": 5}),
        Call(
            "seeds.add_positional_encoding",
            s.add_positional_encoding,
            {"word_embeddings": torch.randn(2, 5, 4), "positional_encodings": torch.randn(5, 4)},
        ),
        Call("seeds.att_score", s.att_score, of_three),
        Call("seeds.attention_score", s.attention_score, {**of_three, "mask": torch.ones(5, 7)}),
        Call(
            "seeds.scaled_dot_product_attention",
            s.scaled_dot_product_attention,
            {**of_three, "mask": torch.ones(5, 7)},
        ),
        Call("seeds.create_mask", s.create_mask, {"seq_len": 5}),
        Call(
            "seeds.visualize_positional_encoding", s.visualize_positional_encoding, {"PE": torch.randn(5, 4)}
        ),
        Call("seeds.SelfAttention", s.SelfAttention, {"d_in": 6, "d_k": 4, "d_v": 3}),
        Call(
            "seeds.MultiHeadSelfAttention",
            s.MultiHeadSelfAttention,
            {"d_in": 6, "d_k": 4, "d_v": 6, "num_heads": 2},
        ),
        Call("seeds.SelfAttention.forward", s.SelfAttention(4, 4, 3), {"X": q[0], "mask": torch.ones(5, 5)}),
    ]


def look_calls(q: Any, k: Any, v: Any, x: Any, place: Path) -> list[Call]:
    sight, own = sl.look(q, k, v), sl.look(q, q, q, sl.masks.causal())
    difference = sl.look(q, k, v) - sl.look(q + 1, k, v)
    model = _Toy()
    with sl.watch(model, keep=True) as seen:
        model(x)
    with sl.watch(model, grad=True) as graph:
        model(x).square().sum().backward()
    sight.save(place / "sight.safetensors")
    seen.save(place / "seen.safetensors")
    trained = _watched_backward(graph)
    watch = {
        "layers": "*",
        "every": 1,
        "measure": sl.Look(),
        "keep": False,
        "limit": 1 << 20,
        "attention_mask": torch.ones(2, 5),
        "lengths": None,
        "tokens": ["a", "b", "c", "d", "e"],
        "grad": False,
    }
    edit = {
        "layers": "first",
        "heads": [0],
        "ablate": "zero",
        "forbid": [(None, [1])],
        "temperature": 2.0,
        "scale": 0.5,
    }
    questions = [
        ("map", {"size": (2, 3), "queries": (0, 4), "keys": (1, 7)}),
        ("rows", {"index": [0, 2]}),
        ("columns", {"index": [0, 2]}),
        ("mass", {"groups": [slice(0, 3), [4]]}),
        ("offsets", {"n": 3, "first": 0}),
        ("received_from", {"queries": (1, 3), "reduce": "mean"}),
    ]
    return [
        *(Call(f"Sight.{name}", getattr(sight, name), given) for name, given in questions),
        *(Call(f"SightDifference.{name}", getattr(difference, name), given) for name, given in questions[:2]),
        Call("Sight.received_from", sight.received_from, {"queries": None, "reduce": "sum", "n_kv_heads": 3}),
        Call("Sight.mass", sight.mass, {"groups": {"a": [0, 1], "b": 3}}),
        Call("Sight.mass", sight.mass, {"groups": torch.tensor([0, 0, 1, 1, -1, 2, 2])}),
        Call("Sight.top", sight.top, {"k": 2}),
        Call("Sight.__getitem__", sight.__getitem__, {"index": (0, slice(0, 2))}),
        Call("Sight.to", sight.to, {"device": "cpu"}),
        Call("Sight.save", sight.save, {"path": place / "again.safetensors", "keep": True}),
        Call("Sight.load", sl.Sight.load, {"path": place / "sight.safetensors"}),
        Call("Recording.__getitem__", seen.__getitem__, {"name": "first"}),
        Call("Recording.calls", seen.calls, {"name": "first"}),
        Call("Recording.stack", seen.stack, {"name": "first", "beams": None}),
        Call("Recording.runs", seen.runs, {"name": "first", "follow": True}),
        Call("Recording.save", seen.save, {"path": place / "seen2.safetensors", "keep": False}),
        Call("Recording.load", type(seen).load, {"path": place / "seen.safetensors"}),
        Call(
            "watch",
            _watched,
            {"model": model, **watch},
        ),
        Call("edit", _edited, {"model": model, **edit}),
        Call("Monitor", _monitored, {"model": model, "every": 2, "log": place / "heads.csv", "layers": None}),
        Call(
            "align",
            sl.align,
            {
                "sight": own,
                "heads": [0, 1],
                "queries": (0, 4),
                "keys": (0, 5),
                "method": "dtw",
                "normalize": True,
                "filter_width": 3,
                "beams": None,
            },
        ),
        Call("align", sl.align, {"sight": own, "beams": torch.zeros(2, 5, dtype=torch.long)}),
        Call("rollout", rollout, {"sights": [own, own], "residual": 0.5, "token": 2}),
        Call("received_flow", received_flow, {"sights": [own, own], "residual": 0.5}),
        Call("relevance", relevance, {"sights": trained, "token": 2}),
        Call("head_table", head_table, {"seen": seen, "period": 2, "span": (1, 3)}),
        Call("sharpest", sharpest, {"table": head_table(seen), "n": 2}),
        Call("read_groups", read_groups, {"groups": [[0, 1]], "s": 7, "device": "cpu", "tokens": ()}),
    ]


def _watched_backward(graph: Any) -> list[Any]:
    return [graph[name] for name in graph.names()]


def _watched(model: Any, **options: Any) -> Any:
    with sl.watch(model, **options) as seen:
        model(torch.ones(2, 5, 6))
    return seen.names()


def _edited(model: Any, **options: Any) -> Any:
    with sl.edit(model, **options):
        return model(torch.ones(2, 5, 6))


def _monitored(model: Any, **options: Any) -> Any:
    with sl.Monitor(model, **options) as monitor:
        monitor.step()
    return monitor.latest


for _made, _real in ((_watched, sl.watch), (_edited, sl.edit), (_monitored, sl.Monitor.__init__)):
    _made.__wrapped__ = _real  # their annotations are the door's
