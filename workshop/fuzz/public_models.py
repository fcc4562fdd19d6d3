"""Valid calls of models, training, runs and what is shown of them."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import sightline as sl
from tests.tiny import HERE, IMAGE
from tests.train.toy import Toy, ToyObjective
from workshop.fuzz.public_call import Call


def model_calls(place: Path) -> list[Call]:
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


def show_calls(q: Any, k: Any, place: Path) -> list[Call]:
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


def task_calls(place: Path) -> list[Call]:
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
