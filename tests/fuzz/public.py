"""One valid call of every public function, class and method: what the fuzzer of arguments starts from.

A call is a name, what is called, and its arguments by name. A test holds the table against the package's own
lists of names, so that a new one is fuzzed from its first day.
"""

import dataclasses
import inspect
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

import sightline as sl
from sightline.look.flow import received_flow, relevance, rollout
from sightline.look.groups import read_groups
from sightline.look.heads import head_table, sharpest
from tests.fuzz.runs import HERE, IMAGE
from tests.train.toy import Toy, ToyObjective

ROOMS = ("masks", "models", "positions", "scores", "seeds", "show", "tasks", "train")
METHODS = {
    "Sight": (
        "map",
        "rows",
        "top",
        "mass",
        "columns",
        "received_from",
        "offsets",
        "__getitem__",
        "to",
        "save",
        "load",
    ),
    "Seen": ("__getitem__", "calls", "stack", "runs", "save", "load"),
    "SightDifference": ("map", "rows", "columns", "mass", "offsets", "received_from"),
    "Mask": ("dense", "__and__"),
    "Run": ("predict", "evaluate", "watch", "layers", "steps", "dataset"),
    "Attention": ("select",),
    "Page": ("save",),
}
# Names that are no door for a user's values: protocols, what the package hands out, torch's own classes.
APART = {
    "Sight": "made by sl.look",
    "masks.Band": "a part of a Mask",
    "Mask": "made by sl.masks",
    "masks.Mask": "made by sl.masks",
    "positions.POSITIONS": "a tuple of names",
    "scores.Score": "abstract",
    "scores.Dot": "takes nothing",
    "scores.ScaledDot": "takes nothing",
    "scores.Cosine": "takes nothing",
    "show.pages": "a module; its functions take what runs hand out",
    "show.Page": "made by show.page",
    "tasks.TRAINING": "a record",
    "tasks.Preset": "an alias",
    "tasks.SaveableModel": "a protocol",
    "tasks.Predictor": "a base class for tasks of one's own",
    "tasks.DatasetObjective": "a base class for tasks of one's own",
    "tasks.Part": "a record that tasks of one's own are made of",
    "tasks.Prepared": "a record that tasks of one's own are made of",
    "tasks.Task": "a record that tasks of one's own are made of",
    "tasks.MemoryDataset": "a record that tasks of one's own are made of",
    "tasks.Settings": "made by the package",
    "tasks.Run": "made by open_run",
    "tasks.Alternative": "handed out",
    "tasks.Evaluation": "handed out",
    "tasks.Example": "handed out",
    "tasks.Prediction": "handed out",
    "tasks.Scores": "handed out",
    "tasks.kinds": "takes nothing",
    "train.Loss": "a record that objectives hand out",
    "train.Objective": "a protocol",
    "train.Stage": "a record that tasks of one's own are made of",
}


@dataclass(frozen=True)
class Call:
    """A valid call.

    Attributes:
        name: As users write it.
        function: What is called.
        arguments: By name; those of ``*args`` and operators by place, "0".
        hints: Its annotations, by argument.
    """

    name: str
    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    hints: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __call__(self, **changed: Any) -> Any:
        """Call it, with some arguments changed."""
        return self.function(**{**self.arguments, **changed})


class _Toy(nn.Module):
    """A model that attends twice, by torch's kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.MultiheadAttention(6, 2, batch_first=True)
        self.second = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.first(x, x, x, need_weights=False)[0]
        return x + self.second(x, x, x, need_weights=False)[0]


def calls(place: Path) -> list[Call]:
    """All valid calls, their files in ``place``."""
    torch.manual_seed(5)
    q, k, v = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 4)
    x = torch.randn(2, 5, 6)
    found = [
        *_mechanism(q, k, v),
        *_positions(),
        *_look(q, k, v, x, place),
        *_models(place),
        *_show(q, k, place),
        *_tasks(place),
        *_seeds(q, k, v),
    ]
    return [dataclasses.replace(call, hints=_hints(call.function)) for call in found]


def _hints(function: Any) -> dict[str, Any]:
    """Annotations of a function or of a class's ``__init__``, where they can be read."""
    target = function.__init__ if isinstance(function, type) else function
    try:
        return dict(inspect.get_annotations(inspect.unwrap(target), eval_str=True))
    except (NameError, TypeError):
        return {}


def _mechanism(q: Any, k: Any, v: Any) -> list[Call]:
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


def _positions() -> list[Call]:
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


def _look(q: Any, k: Any, v: Any, x: Any, place: Path) -> list[Call]:
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
        *(Call(f"SightDifference.{name}", getattr(difference, name), given) for name, given in questions),
        Call("Sight.received_from", sight.received_from, {"queries": None, "reduce": "sum", "n_kv_heads": 3}),
        Call("Sight.mass", sight.mass, {"groups": {"a": [0, 1], "b": 3}}),
        Call("Sight.mass", sight.mass, {"groups": torch.tensor([0, 0, 1, 1, -1, 2, 2])}),
        Call("Sight.top", sight.top, {"k": 2}),
        Call("Sight.__getitem__", sight.__getitem__, {"index": (0, slice(0, 2))}),
        Call("Sight.to", sight.to, {"device": "cpu"}),
        Call("Sight.save", sight.save, {"path": place / "again.safetensors", "keep": True}),
        Call("Sight.load", sl.Sight.load, {"path": place / "sight.safetensors"}),
        Call("Seen.__getitem__", seen.__getitem__, {"name": "first"}),
        Call("Seen.calls", seen.calls, {"name": "first"}),
        Call("Seen.stack", seen.stack, {"name": "first", "beams": None}),
        Call("Seen.runs", seen.runs, {"name": "first", "follow": True}),
        Call("Seen.save", seen.save, {"path": place / "seen2.safetensors", "keep": False}),
        Call("Seen.load", type(seen).load, {"path": place / "seen.safetensors"}),
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


def _models(place: Path) -> list[Call]:
    m = sl.models
    folders = {
        "Captioner": "caption",
        "Translator": "translate",
        "RecurrentTranslator": "translate-recurrent",
        "VisionTransformer": "classify",
    }
    configs = {
        "CaptionerConfig": {
            "vocab_size": 11,
            "image_size": 8,
            "patch": 4,
            "d_model": 4,
            "n_heads": 2,
            "n_layers": 1,
            "d_ff": 4,
        },
        "TranslatorConfig": {
            "vocab_size": 11,
            "source_vocab_size": 13,
            "d_model": 4,
            "n_heads": 2,
            "n_layers": 1,
            "d_ff": 4,
        },
        "RecurrentConfig": {"vocab_size": 11, "source_vocab_size": 13, "d_model": 4, "d_attn": 3},
        "VisionTransformerConfig": {
            "image_size": 8,
            "patch": 4,
            "d_model": 4,
            "n_heads": 2,
            "n_layers": 1,
            "d_ff": 4,
        },
    }
    models = zip(
        folders,
        ("CaptionerConfig", "TranslatorConfig", "RecurrentConfig", "VisionTransformerConfig"),
        strict=True,
    )
    return [
        *(
            Call(
                f"models.{name}.load",
                getattr(m, name).load,
                {"folder": HERE / folder / "finished", "device": "cpu", "force": False},
            )
            for name, folder in folders.items()
        ),
        *(Call(f"models.{name}", getattr(m, name), given) for name, given in configs.items()),
        *(
            Call(f"models.{name}", getattr(m, name), {"config": getattr(m, config)(**configs[config])})
            for name, config in models
        ),
        Call(
            "train.TrainConfig",
            sl.train.TrainConfig,
            {
                "epochs": 2,
                "batch_size": 4,
                "lr": 1e-3,
                "schedule": "cosine",
                "warmup": 0.1,
                "seed": 3,
                "steps": None,
            },
        ),
        Call(
            "train.fit",
            _fitted,
            {
                "model": Toy(),
                "objective": ToyObjective(),
                "config": sl.train.TrainConfig(epochs=1, metric="loss"),
                "out": place / "fit",
                "resume": False,
            },
        ),
    ]


def _show(q: Any, k: Any, place: Path) -> list[Call]:
    s = sl.show
    batch = sl.look(q, k, k)
    sight = batch[0]
    queries, keys = list("abcde"), list("abcdefg")
    words = {"queries": queries, "keys": keys, "title": "t"}
    overlay = {
        "image": torch.zeros(3, 8, 8, dtype=torch.uint8),
        "words": ["a", "cat"],
        "weights": torch.rand(2, 3, 4),
        "grid": (2, 2),
        "text": "a cat",
        "name": "x.png",
        "references": ("a cat",),
        "score": "",
    }
    record = s.CaptionOverlay(**overlay)
    weights = torch.softmax(torch.randn(5, 7), -1)
    prediction = next(iter(sl.open_run(HERE / "caption/finished", "cpu").predict([IMAGE])))
    page = {
        "shown": batch,
        "tokens": None,
        "image": None,
        "grid": None,
        "item": 0,
        "title": "t",
        "model": "m",
        "steps": None,
        "other": None,
        "names": ("before", "after"),
        "max_bytes": 100_000,
    }
    return [
        Call("show.weights", s.weights, {"weights": weights, **words}),
        Call("show.heads", s.heads, {"sight": sight, **words, "size": 3}),
        Call("show.sight_map", s.sight_map, {"sight": sight, **words, "head": 1, "size": 3}),
        Call(
            "show.rows",
            s.rows,
            {"sight": sight, "index": [0, 2], "tokens": keys, "queries": queries, "head": 1, "title": "t"},
        ),
        Call("show.received", s.received, {"sight": sight, "tokens": keys, "head": 1, "title": "t"}),
        Call("show.entropy", s.entropy, {"seen": {"a": sight, "b": sight}, "title": "t"}),
        Call("show.mask", s.mask, {"mask": sl.masks.causal(), "t": 3, "s": 5}),
        Call("show.masks", s.masks, {"named": {"c": sl.masks.causal()}, "t": 3, "s": 5}),
        Call("show.positions", s.positions, {"table": torch.randn(5, 4), "title": "t"}),
        Call(
            "show.scores",
            s.scores,
            {"q": q[0, 0], "k": k[0, 0], "scores": {"d": "dot"}, "queries": queries, "keys": keys},
        ),
        Call("show.curves", s.curves, {"metrics": {"loss": [(0, 1.0), (1, 0.5)]}, "title": "t"}),
        Call("show.CaptionOverlay", s.CaptionOverlay, overlay),
        Call(
            "show.Step", s.Step, {"token": "a", "probability": 0.5, "alternatives": (("b", 0.1),), "query": 0}
        ),
        Call("show.overlay", s.overlay, {"record": record, "head": 1, "title": "t", "smooth": True}),
        Call("show.overlays", s.overlays, {"predictions": [prediction]}),
        Call("show.prediction", s.prediction, {"p": prediction, "layer": 0, "head": 0, "title": "t"}),
        Call("show.page", s.page, page),
        Call("show.page", s.page, {"shown": prediction, "image": IMAGE, "grid": (2, 2)}),
        Call("show.beam_tree", s.beam_tree, {"trace": _trace(), "words": str, "keys": None, "title": "t"}),
        Call("Page.save", s.page(sight).save, {"path": place / "page.html"}),
    ]


def _trace() -> Any:
    """Two steps of a beam search of two."""
    from sightline.decode.trace import BeamStep, BeamTrace

    first = BeamStep(
        parents=(0, 0), tokens=(1, 2), log_probs=(-0.1, -2.0), scores=(-0.1, -2.0), ended=(), weights=None
    )
    last = BeamStep(
        parents=(0, 1),
        tokens=(3, 1),
        log_probs=(-0.2, -0.3),
        scores=(-0.3, -2.3),
        ended=((0, -0.4),),
        weights=None,
    )
    return BeamTrace(steps=[first, last])


def _tasks(place: Path) -> list[Call]:
    t = sl.tasks
    run, dates = (sl.open_run(HERE / f"{kind}/finished", "cpu") for kind in ("caption", "translate"))
    prediction = next(iter(run.predict([IMAGE])))
    attention = {"weights": torch.rand(1, 2, 3, 4), "queries": ("a", "b", "c"), "keys": ("d", "e", "f", "g")}
    grid = {"rows": 2, "columns": 2, "image": torch.zeros(3, 8, 8, dtype=torch.uint8)}
    fields = {
        "n_train": 12,
        "n_val": 3,
        "n_test": 3,
        "steps": 1,
        "image_size": 8,
        "patch": 4,
        "d_model": 4,
        "n_heads": 2,
        "n_layers": 1,
        "d_ff": 4,
        "metric": "loss",
    }
    return [
        Call(
            "open_run", sl.open_run, {"folder": HERE / "classify/finished", "device": "cpu", "force": False}
        ),
        Call("tasks.open_run", t.open_run, {"folder": str(HERE / "classify/finished")}),
        Call(
            "Run.predict",
            _predicted(run),
            {"inputs": [IMAGE], "attention": True, "batch_size": 2, "beam": 2, "on_error": None},
        ),
        Call(
            "Run.predict",
            _predicted(dates),
            {"inputs": ["3 May 1999"], "attention": False, "batch_size": 2, "beam": 2},
        ),
        Call(
            "Run.evaluate",
            run.evaluate,
            {"split": "test", "limit": 1, "batch_size": 2, "attention": False, "progress": None},
        ),
        Call("Run.watch", run.watch, {"inputs": [IMAGE]}),
        Call("Run.layers", run.layers, {"prediction": prediction}),
        Call("Run.steps", run.steps, {"prediction": prediction}),
        Call("Run.dataset", run.dataset, {"data": "scenes"}),
        Call("Attention.select", t.Attention(**attention).select, {"layer": 0, "head": 1}),
        Call("tasks.Attention", t.Attention, attention),
        Call("tasks.Grid", t.Grid, grid),
        Call("tasks.summary", t.summary, {"kind": "caption"}),
        Call("tasks.task_of", t.task_of, {"kind": "caption"}),
        Call(
            "tasks.register", _registered, {"new": dataclasses.replace(t.task_of("caption"), kind="another")}
        ),
        Call("tasks.unregister", t.unregister, {"kind": "nothing"}),
        Call(
            "tasks.train",
            _trained(place),
            {
                "kind": "caption",
                "out": place / "trained",
                "data": "scenes",
                "preset": "default",
                "model": None,
                "size": None,
                "resume": False,
                "start_from": None,
                "shown": False,
                **fields,
            },
        ),
    ]


def _predicted(run: Any) -> Callable[..., Any]:
    def predict(**options: Any) -> Any:
        return list(run.predict(**options))

    predict.__wrapped__ = run.predict
    return predict


def _trained(place: Path) -> Callable[..., Any]:
    def train(**options: Any) -> Any:
        shutil.rmtree(place / "trained", ignore_errors=True)
        return sl.tasks.train(**options)

    train.__wrapped__ = sl.tasks.train
    return train


def _fitted(out: Any, **options: Any) -> Any:
    if isinstance(out, Path) and out.name == "fit":
        shutil.rmtree(out, ignore_errors=True)
    return sl.train.fit(out=out, **options)


_fitted.__wrapped__ = sl.train.fit


def _registered(new: Any) -> Any:
    sl.tasks.register(new)
    sl.tasks.unregister(new.kind)


_registered.__wrapped__ = sl.tasks.register


def _seeds(q: Any, k: Any, v: Any) -> list[Call]:
    s = sl.seeds
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


def public_names() -> set[str]:
    """Every name that the package promises, with the methods of what it hands out."""
    names = set()
    for name in sl.__all__:
        found = getattr(sl, name)
        if not isinstance(found, ModuleType):
            names.add(name)
        elif name in ROOMS:
            names |= {f"{name}.{inner}" for inner in found.__all__}
    names |= {f"{kind}.{method}" for kind, methods in METHODS.items() for method in methods}
    return names | {"look", "reference.scaled_dot_product_attention"}
