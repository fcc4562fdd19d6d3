"""Bad input to ``sl.watch``, to what it saw, and to ``sl.Monitor``."""

import functools

import torch
from torch import nn

import sightline as sl

X = torch.zeros(2, 5, 8)


@functools.cache
def model():
    """An encoder layer."""
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


@functools.cache
def seen():
    """What was seen of it in two calls."""
    with sl.watch(model(), keep=True) as recording:
        model()(X)
        model()(X)
    return recording


@functools.cache
def nothing():
    """What was seen of a model that did not run."""
    with sl.watch(model()) as recording:
        pass
    return recording


def run(**options):
    """Watch one call."""
    with sl.watch(model(), **options):
        model()(X)


BAD = {
    "sl.watch(model): a function": (lambda: sl.watch(torch.relu), TypeError, "nn.Module", "sl.look"),
    "sl.watch(layers): a number": (lambda: sl.watch(model(), layers=3), TypeError, "layers", "int"),
    "sl.watch(every): zero": (lambda: sl.watch(model(), every=0), ValueError, ">= 1", "0"),
    "sl.watch(every): half": (lambda: sl.watch(model(), every=2.5), ValueError, "whole", "2.5"),
    "sl.watch(measure): a text": (lambda: sl.watch(model(), measure="map"), TypeError, "sl.Look", "str"),
    "sl.watch(keep): unknown": (lambda: sl.watch(model(), keep="gpu"), ValueError, '"cpu"', "'gpu'"),
    "sl.watch(keep): with gradients": (
        lambda: sl.watch(model(), keep="cpu", grad=True), ValueError, "grad=True", "leave out keep",
    ),
    "sl.watch(limit): negative": (lambda: sl.watch(model(), limit=-1), ValueError, ">= 0", "-1"),
    "sl.watch(attention_mask): a list": (lambda: sl.watch(model(), attention_mask=[[1]]), TypeError, "list"),
    "sl.watch(attention_mask): three dimensions": (
        lambda: sl.watch(model(), attention_mask=torch.ones(2, 5, 5)), ValueError, "(2, 5, 5)",
    ),
    "sl.watch(lengths): halves": (lambda: sl.watch(model(), lengths=[1.5]), ValueError, "1.5"),
    "sl.watch(lengths): both": (
        lambda: sl.watch(model(), lengths=[1], attention_mask=torch.ones(1, 5)), ValueError, "attention_mask",
    ),
    "sl.watch(tokens): a number": (lambda: sl.watch(model(), tokens=3), TypeError, "tokens", "3"),
    "sl.watch(grad): a text": (lambda: sl.watch(model(), grad="yes"), TypeError, "grad", "'yes'"),
    "Watch.__enter__(): twice": (lambda: twice(sl.watch(model())), RuntimeError, "entered already", "sl.watch"),
    "Recording.__getitem__(name): unknown": (lambda: seen()["self_atn"], ValueError, "'self_atn'", "'self_attn'"),
    "Recording.__getitem__(name): a pattern": (lambda: seen()["x*"], ValueError, "'x*'"),
    "Recording.__getitem__(name): too far": (lambda: seen()[1], ValueError, "1 modules", "1"),
    "Recording.__getitem__(name): none": (lambda: seen()[None], TypeError, "None", "seen.names()"),
    "Recording.__getitem__(name): it has not run": (lambda: nothing()["self_attn"], ValueError, "not run", "with"),
    "Recording.calls(name): unknown": (lambda: seen().calls("x"), ValueError, "'x'", "self_attn"),
    "Recording.calls(name): a number": (lambda: seen().calls(0), TypeError, "name", "0"),
    "Recording.stack(name): unknown": (lambda: seen().stack("x"), ValueError, "'x'"),
    "Recording.runs(name): unknown": (lambda: seen().runs("x"), ValueError, "'x'"),
    "Recording.runs(follow): a text": (lambda: seen().runs("self_attn", follow="no"), TypeError, "'no'"),
    "Recording.save(path): no folder": (lambda: seen().save("/nowhere/x"), ValueError, "/nowhere"),
    "Recording.load(path): nothing there": (lambda: type(seen()).load("/nowhere/x"), ValueError, "/nowhere/x"),
    "sl.Monitor(model): a text": (lambda: sl.Monitor("model"), TypeError, "nn.Module", "str"),
    "sl.Monitor(every): zero": (lambda: sl.Monitor(model(), every=0), ValueError, "0"),
    "sl.Monitor(log): a number": (lambda: sl.Monitor(model(), log=3), TypeError, "log", "int"),
    "sl.Monitor(layers): a number": (lambda: sl.Monitor(model(), layers=3), TypeError, "layers", "int"),
}  # fmt: skip


def twice(watch):
    """Enter a block inside itself."""
    with watch, watch:
        pass
