"""Bad input to ``sl.look``, to the questions of a sight, and to ``sl.align``."""

import functools

import torch
from torch import nn

import sightline as sl

Q, K, V = torch.zeros(2, 6, 5, 3), torch.zeros(2, 6, 7, 3), torch.zeros(2, 6, 7, 2)


@functools.cache
def sight(**options):
    """A look at five queries and seven keys."""
    return sl.look(Q, K, V, **options)


def steps():
    """Two steps of a decoding loop, put together."""
    layer, x = nn.MultiheadAttention(4, 2, batch_first=True), torch.zeros(1, 2, 4)
    with torch.no_grad(), sl.watch(layer, keep=True) as seen:
        layer(x[:, :1], x[:, :1], x[:, :1])
        layer(x[:, 1:], x, x)
    return seen.stack(seen.names()[0])


BAD = {
    # sl.look
    "sl.look(q): other widths": (lambda: sl.look(Q[..., :2], K, V), ValueError, "width", "2", "3"),
    "sl.look(k): a list": (lambda: sl.look(Q, [1.0], V), TypeError, "k", "list"),
    "sl.look(v): other lengths": (lambda: sl.look(Q, K, V[:, :, :6]), ValueError, "length", "7", "6"),
    "sl.look(mask): ones": (lambda: sl.look(Q, K, V, torch.eye(5, 7)), ValueError, "from_ones"),
    "sl.look(measure): a text": (lambda: sl.look(Q, K, V, measure="entropy"), TypeError, "sl.Look", "str"),
    "sl.look(score): unknown": (lambda: sl.look(Q, K, V, score="dott"), ValueError, "'dott'", "'dot'"),
    "sl.look(scale): infinite": (lambda: sl.look(Q, K, V, scale=torch.inf), ValueError, "finite", "inf"),
    "sl.look(keep): a text": (lambda: sl.look(Q, K, V, keep="cpu"), TypeError, "keep", "'cpu'"),
    "sl.look(group): a text": (lambda: sl.look(Q, K, V, group="world"), (TypeError, ValueError), "group"),
    # what to measure
    "sl.Look(received): a number": (lambda: sl.Look(received=1), TypeError, "received", "1"),
    "sl.Look(entropy): none": (lambda: sl.Look(entropy=None), TypeError, "entropy", "None"),
    "sl.Look(peak): a text": (lambda: sl.Look(peak="yes"), TypeError, "peak", "'yes'"),
    "sl.Look(map): zero": (lambda: sl.Look(map=0), ValueError, "1 x 1", "0"),
    "sl.Look(map): three": (lambda: sl.Look(map=(1, 2, 3)), ValueError, "(rows, columns)", "(1, 2, 3)"),
    "sl.Look(map): larger than T x S": (lambda: sight(measure=sl.Look(map=8)), ValueError, "8 x 8", "(5, 7)"),
    "sl.Look(top): zero": (lambda: sl.Look(top=0), ValueError, ">= 1", "0"),
    "sl.Look(top): more than S": (lambda: sight(measure=sl.Look(top=8)), ValueError, "S=7", "8"),
    # what was not measured, or not kept
    "sl.Sight.received(): not measured": (
        lambda: sight(measure=sl.Look(received=False)).received, ValueError, "received", "sl.Look(received=True)",
    ),
    "sl.Sight.entropy(): not measured": (
        lambda: sight(measure=sl.Look(entropy=False)).entropy, ValueError, "entropy", "sl.Look(entropy=True)",
    ),
    "sl.Sight.peak(): not measured": (
        lambda: sight(measure=sl.Look(peak=False)).peak, ValueError, "peak", "sl.Look(peak=True)",
    ),
    "sl.Sight.lse(): averaged": (lambda: sight().mean_heads().lse, ValueError, "lse", "single heads"),
    "sl.Sight.logit(): averaged": (lambda: sight().mean_heads().logit, ValueError, "single heads"),
    "sl.Sight.map(): not kept": (
        lambda: sight(keep=False).map(3), ValueError, "3 x 3", "keep=True", "sl.Look(map=3)",
    ),
    "sl.Sight.top(): not kept": (lambda: sight(keep=False).top(2), ValueError, "top 2", "sl.Look(top=2)"),
    "sl.Sight.rows(): not kept": (lambda: sight(keep=False).rows([1]), ValueError, "rows", "keep=True"),
    "sl.Sight.mass(): forgotten": (lambda: sight().forget().mass([[0]]), ValueError, "mass", "keep=True"),
    "sl.Sight.importance(): no gradients": (lambda: sight().importance, ValueError, "grad=True", "backward"),
    "sl.Sight.relevance(): no gradients": (lambda: sight().relevance, ValueError, "grad=True", "backward"),
    # its questions
    "sl.Sight.map(size): zero": (lambda: sight().map(0), ValueError, "at least one cell", "0 x 0"),
    "sl.Sight.map(size): a text": (lambda: sight().map("3"), ValueError, "(rows, columns)", "'3'"),
    "sl.Sight.map(queries): too far": (lambda: sight().map(1, queries=(0, 6)), ValueError, "0..5", "(0, 6)"),
    "sl.Sight.map(keys): backwards": (lambda: sight().map(1, keys=(3, 2)), ValueError, "keys", "(3, 2)"),
    "sl.Sight.rows(index): too far": (lambda: sight().rows([5]), ValueError, "0..4", "5"),
    "sl.Sight.rows(index): half": (lambda: sight().rows([1.5]), TypeError, "whole numbers", "1.5"),
    "sl.Sight.rows(index): a text": (lambda: sight().rows("1"), TypeError, "index", "'1'"),
    "sl.Sight.top(k): zero": (lambda: sight().top(0), ValueError, "at least 1", "0"),
    "sl.Sight.top(k): more than S": (lambda: sight().top(8), ValueError, "S=7", "8"),
    "sl.Sight.columns(index): too far": (lambda: sight().columns([9]), ValueError, "0..6", "9"),
    "sl.Sight.columns(index): a text": (lambda: sight().columns("a"), TypeError, "'a'"),
    "sl.Sight.mass(groups): too far": (lambda: sight().mass([[7]]), ValueError, "0..6", "7"),
    "sl.Sight.mass(groups): too few ids": (lambda: sight().mass([0, 1, 2]), ValueError, "S=7", "3"),
    "sl.Sight.mass(groups): floats": (lambda: sight().mass(torch.zeros(7)), TypeError, "whole", "float32"),
    "sl.Sight.mass(groups): a text": (lambda: sight().mass("image"), TypeError, "list of groups", "str"),
    "sl.Sight.mass(groups): no tokens": (lambda: sight().mass(["image"]), ValueError, "'image'", "tokens="),
    "sl.Sight.mass(groups): another batch": (
        lambda: sight().mass(torch.zeros(3, 7, dtype=torch.long)), ValueError, "B=2", "3",
    ),
    "sl.Sight.received_from(queries): too far": (lambda: sight().received_from((3, 9)), ValueError, "(3, 9)"),
    "sl.Sight.received_from(reduce): unknown": (
        lambda: sight().received_from((3, 4), "sume"), ValueError, "'sume'", "'sum'",
    ),
    "sl.Sight.received_from(n_kv_heads): no divisor": (
        lambda: sight().received_from((3, 4), n_kv_heads=4), ValueError, "4", "6 heads",
    ),
    "sl.Sight.offsets(n): more than S": (lambda: sight().offsets(8, first=0), ValueError, "S=7", "8"),
    "sl.Sight.offsets(n): which tokens": (lambda: sight().offsets(3), ValueError, "T=5", "S=7", "first="),
    "sl.Sight.offsets(first): a text": (lambda: sight().offsets(3, first="a"), TypeError, "first", "'a'"),
    "sl.Sight.mean_heads(): no heads": (lambda: sight()[0, 0].mean_heads(), ValueError, "no heads", "()"),
    "sl.Sight.__getitem__(index): too far": (lambda: sight()[2], ValueError, "2", "(2, 6)"),
    "sl.Sight.__getitem__(index): too many": (lambda: sight()[0, 1, 2], ValueError, "(2, 6)", "3 indices"),
    "sl.Sight.__getitem__(index): a text": (lambda: sight()["a"], ValueError, "no a", "entropy"),
    "sl.Sight.__getitem__(index): backwards": (lambda: sight()[::-1], ValueError, "forward", "-1"),
    "sl.Sight.ask(measure): a text": (lambda: sight().ask("entropy"), TypeError, "sl.measures", "entropy"),
    "sl.Sight.__matmul__(x): too short": (lambda: sight() @ torch.ones(6, 2), ValueError, "S=7", "(6, 2)"),
    "sl.Sight.__matmul__(x): a list": (lambda: sight() @ [1.0], ValueError, "S=7", "[1.0]"),
    "sl.look(measure): a class": (
        lambda: sl.look(Q, K, V, measure=[sl.measures.Entropy]), TypeError, "the class Entropy", "call it",
    ),
    "sl.look(measure): no outputs": (
        lambda: sl.look(Q, K, V, measure=[sl.Measure()]), TypeError, "Measure has no outputs", "Out",
    ),
    "sl.look(measure): twice": (
        lambda: sl.look(Q, K, V, measure=[sl.measures.Entropy()] * 2), ValueError, "'entropy'", "twice",
    ),
    "sl.Sight.to(device): unknown": (lambda: sight().to("gpu"), (ValueError, RuntimeError), "gpu"),
    "sl.Sight.save(path): no folder": (lambda: sight().save("/nowhere/x"), ValueError, "/nowhere"),
    "sl.Sight.save(path): a folder": (lambda: sight().save("/"), ValueError, "folder", "/"),
    "sl.Sight.save(keep): not kept": (
        lambda: sight(keep=False).save("/tmp/x", keep=True), ValueError, "keep=True", "watch",  # noqa: S108
    ),
    "sl.Sight.load(path): nothing there": (lambda: sl.Sight.load("/nowhere/x"), ValueError, "/nowhere/x"),
    "sl.Sight.load(path): no sight": (lambda: sl.Sight.load(__file__), ValueError, "safetensors"),
    "sl.Sight.__sub__(other): other sizes": (lambda: sight() - sl.look(Q, K[:, :, :4], V[:, :, :4]), ValueError, "7"),
    # divergences
    "sl.divergence(a): a tensor": (lambda: sl.divergence(Q, sight()), TypeError, "a must be a sight", "(2, 6, 5, 3)"),
    "sl.divergence(a): averaged": (
        lambda: sl.divergence(sight().mean_heads(), sight()), ValueError, "a has", "mean_heads()",
    ),
    "sl.divergence(a): stacked steps": (lambda: sl.divergence(steps(), steps()), ValueError, "2 steps", "single"),
    "sl.divergence(b): not kept": (lambda: sl.divergence(sight(), sight(keep=False)), ValueError, "keep=True"),
    "sl.divergence(b): another T": (
        lambda: sl.divergence(sight(), sl.look(Q[:, :, :4], K, V)), ValueError, "(2, 5, 7)", "(2, 4, 7)",
    ),
    "sl.divergence(b): another S": (
        lambda: sl.divergence(sight(), sl.look(Q, K[:, :, :4], V[:, :, :4])), ValueError, "(2, 5, 7)", "(2, 5, 4)",
    ),
    "sl.divergence(b): another B": (
        lambda: sl.divergence(sight(), sl.look(Q[:1], K[:1], V[:1])), ValueError, "(2, 5, 7)", "(1, 5, 7)",
    ),
    "sl.divergence(kind): unknown": (
        lambda: sl.divergence(sight(), sight(), "cross-entropy"), ValueError, "kind 'cross-entropy'", "'cross_entropy'?",
    ),
    "sl.divergence(heads): a list": (
        lambda: sl.divergence(sight(), sight(), heads=[0]), ValueError, '"mean" or None', "[0]",
    ),
    "sl.divergence(heads): other heads": (
        lambda: sl.divergence(sight(), sight()[:, 1:], heads=None), ValueError, "6 heads of a", "5 of b",
    ),
    # alignment
    "sl.align(sight): a tensor": (lambda: sl.align(Q), TypeError, "Tensor"),
    "sl.align(heads): too far": (lambda: sl.align(sight()[0], [6]), ValueError, "6"),
    "sl.align(queries): too far": (lambda: sl.align(sight()[0], queries=(0, 9)), ValueError, "(0, 9)"),
    "sl.align(keys): too far": (lambda: sl.align(sight()[0], keys=(0, 9)), ValueError, "(0, 9)"),
    "sl.align(method): unknown": (lambda: sl.align(sight()[0], method="dwt"), ValueError, "'dwt'", "'dtw'"),
    "sl.align(normalize): a number": (lambda: sl.align(sight()[0], normalize=1), TypeError, "normalize"),
    "sl.align(filter_width): even": (lambda: sl.align(sight()[0], filter_width=4), ValueError, "odd", "4"),
}  # fmt: skip
