"""Write the answers of 400 public calls anew: ``python -m tests.golden.recorded``.

Those in ``recorded.safetensors`` were given by the code before it was rebuilt. Write them anew only where an
answer is meant to change. Every call belongs to a family below; a generator that is seeded by the call's name
draws sizes, mask, score, dtype and question.
"""

import random
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

import sightline as sl
from tests.oracle.draw import qkv, randn
from tests.oracle.edits import EDITS
from tests.oracle.masks import MASKS
from tests.oracle.questions import STATISTICS
from tests.oracle.scores import SCORES, score_of

HERE = Path(__file__).parent / "recorded.safetensors"
N_CALLS = 400
D = 5
LEADS = ((1, 2), (2, 1), (2, 4), (3, 2))
DTYPES = (torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)
OF_BATCH = {"padding", "dense_of_batch", "causal_and_padding", "all_together"}


class Drawn(NamedTuple):
    """The inputs of a call."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    mask: object
    score: object

    @property
    def t(self):
        return self.q.size(-2)

    @property
    def s(self):
        return self.k.size(-2)

    def look(self, **options):
        score = None if self.score == "scaled_dot" else self.score
        return sl.look(self.q, self.k, self.v, self.mask, score=score, **options)


def inputs(rng, *, number, dtypes=DTYPES, scores=SCORES, grad=False, square=False, masks=tuple(MASKS)):
    """Draw the inputs of a call; masks and scores take turns, so that all of them come."""
    t, s = (131, 67) if number % 40 == 39 else (rng.randint(1, 31), rng.randint(1, 31))
    s = t if square else s
    lead = (1, 2) if t > 31 else rng.choice(LEADS)
    name, score = masks[number % len(masks)], scores[number // 2 % len(scores)]
    dtype = rng.choice(dtypes)
    q, k, v = qkv(lead, t, s, D, kv_heads=rng.choice((None, 1, lead[1])), dtype=dtype)
    for x in (q, k, v):
        x.requires_grad_(grad)
    torch.manual_seed(number)
    return Drawn(q, k, v, MASKS[name](lead, t, s)[0], score_of(score, D, dtype))


# The families: each gives the tensors that a call answers


def attention(rng, number):
    """The output; in float64 its gradients too."""
    x = inputs(rng, number=number)
    grad = x.q.dtype == torch.float64
    of = [y.detach().requires_grad_(grad) for y in (x.q, x.k, x.v)]
    output = sl.attention(*of, x.mask, score=None if x.score == "scaled_dot" else x.score)
    yield output.detach()
    if grad:
        upstream = randn(*output.shape, seed=7).to(output)
        found = torch.autograd.grad(output, of, upstream, allow_unused=True)
        yield from (torch.zeros_like(y) if g is None else g for y, g in zip(of, found, strict=True))


def span(rng, n):
    """A span that is not empty."""
    first = rng.randrange(n)
    return first, rng.randint(first + 1, n)


def places(rng, n):
    return [rng.randrange(-n, n) for _ in range(rng.randint(1, 4))]


def size(rng, most):
    return rng.randint(1, min(most, 6))


def a_map(rng, x):
    return x.map((size(rng, x.t), size(rng, x.s)))


def a_map_of_a_window(rng, x):
    queries, keys = span(rng, x.t), span(rng, x.s)
    cells = size(rng, queries[1] - queries[0]), size(rng, keys[1] - keys[0])
    return x.map(cells, queries=queries, keys=keys)


def mass_of_lists(rng, x):
    return x.mass([places(rng, x.s), slice(*span(rng, x.s)), []])


def mass_of_ids(rng, x):
    return x.mass(torch.tensor([*(rng.randint(-1, 3) for _ in range(x.s - 1)), 3]))


def received_from(rng, x):
    return x.received_from(rng.choice([None, span(rng, x.t)]), rng.choice(["sum", "mean", "max"]))


def offsets(rng, x):
    return x.offsets(rng.randint(1, x.s), first=rng.choice([0, x.s - x.t, 3]))


QUESTIONS = {
    "map": a_map,
    "map of a window": a_map_of_a_window,
    "rows": lambda rng, x: x.rows(places(rng, x.t)),
    "columns": lambda rng, x: x.columns(places(rng, x.s)),
    "mass of lists": mass_of_lists,
    "mass of ids": mass_of_ids,
    "received_from": received_from,
    "offsets": offsets,
    "top": lambda rng, x: x.top(size(rng, x.s))[0],
}


def statistics(rng, number):
    """Everything that needs no q and k afterwards, of a sight that kept none."""
    x = inputs(rng, number=number)
    with torch.no_grad():
        sight = x.look(keep=False, measure=sl.Look(map=(size(rng, x.t), size(rng, x.s)), top=size(rng, x.s)))
    for question in STATISTICS.values():
        yield question.ask(sight)
    yield torch.where(
        (sight.peak * x.s - 1).abs() < 1e-3, -2, sight.peak_at
    )  # not where all weights are equal
    yield sight.statistics["map"]
    yield sight.statistics["top"]


def later(rng, number):
    """Two questions of what was kept."""
    x = inputs(rng, number=number)
    with torch.no_grad():
        sight = x.look()
        if rng.random() < 0.3:
            sight = sight[rng.randrange(x.q.size(0))]
        names = list(QUESTIONS)
        for name in (names[number % len(names)], rng.choice(names)):
            yield QUESTIONS[name](rng, sight)


def averaged(rng, number):
    """Statistics and a question of averaged heads."""
    x = inputs(rng, number=number)
    with torch.no_grad():
        sight = x.look().mean_heads()
        yield from (sight.received, sight.entropy, sight.peak)
        yield sight.rows(places(rng, x.t))
        yield mass_of_ids(rng, sight)


def differences(rng, number):
    """What two sights of the same sizes differ by."""
    x = inputs(rng, number=number)
    with torch.no_grad():
        one, other = x.look(), x._replace(q=x.q.flip(-2)).look()
        yield (one - other).received
        yield (one - other).map((size(rng, x.t), size(rng, x.s)))


def gradients(rng, number):
    """Gradients of a statistic and of a later question, in float64."""
    x = inputs(rng, number=number, dtypes=(torch.float64,), grad=True)
    sight = x.look()
    one = rng.choice([question for question in STATISTICS.values() if question.has_gradient])
    for answer in (one.ask(sight), rng.choice([mass_of_ids, received_from, offsets])(rng, sight)):
        visible = torch.where(answer.detach().isfinite(), answer, 0.0) + 0 * (x.q.sum() + x.k.sum())
        upstream = randn(*answer.shape, seed=11).to(answer)
        found = torch.autograd.grad(visible, (x.q, x.k), upstream, allow_unused=True, retain_graph=True)
        yield from (torch.zeros_like(y) if g is None else g for y, g in zip((x.q, x.k), found, strict=True))


class Kernel(nn.Module):
    """Torch's own function in a module."""

    def forward(self, q, k, v, mask, is_causal=False):
        return F.scaled_dot_product_attention(
            q, k, v, mask, is_causal=is_causal, enable_gqa=q.size(1) != k.size(1)
        )


class ByHand(nn.Module):
    """The weights in single steps."""

    def forward(self, q, k, v, mask, is_causal=False):
        k, v = (x.repeat_interleave(q.size(1) // x.size(1), 1) for x in (k, v))
        scores = q @ k.mT * q.size(-1) ** -0.5
        if is_causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).tril() == 0, -torch.inf)
        return (scores if mask is None else scores + mask).softmax(-1) @ v


def watched(rng, number):
    """A model's attention, with a mask, causal or not, kept or not; the output too."""
    x = inputs(rng, number=number, dtypes=DTYPES[:3], scores=("scaled_dot",), masks=("nothing",), square=True)
    model = (Kernel, ByHand)[number % 2]()
    added = randn(x.t, x.t, seed=5).to(x.q.dtype)
    mask, causal = rng.choice([(None, False), (None, True), (added, False), (added.tril(), False)])
    keep = rng.random() < 0.5
    with torch.no_grad(), sl.watch(model, keep=keep, measure=sl.Look(map=min(3, x.t))) as seen:
        yield model(x.q, x.k, x.v, mask, causal)
    sight = seen[""]
    yield from (sight.received, sight.entropy, sight.peak, sight.lse, sight.statistics["map"])
    if keep:
        yield sight.columns(places(rng, x.s))


def padded(rng, number):
    """A batch whose second item is shorter."""
    x = inputs(rng, number=number, dtypes=DTYPES[:3], scores=("scaled_dot",), masks=("nothing",), square=True)
    lengths = [rng.randint(1, x.t) for _ in range(x.q.size(0))]
    real = torch.arange(x.t) < torch.tensor(lengths)[:, None]
    model = Kernel()
    with torch.no_grad(), sl.watch(model, keep=True, lengths=lengths) as seen:
        model(x.q, x.k, x.v, real[:, None, None])
    sight = seen[""]
    yield from (sight.received, sight.entropy, sight.peak, sight.lse)
    yield sight.mass([slice(0, 1)])


def of_the_backward(rng, number):
    """Importance and relevance of heads."""
    x = inputs(
        rng, number=number, dtypes=(torch.float64,), scores=("scaled_dot",), masks=("nothing",), grad=True
    )
    with sl.watch(model := Kernel(), grad=True) as seen:
        output = model(x.q, x.k, x.v, None)
        (output * randn(*output.shape, seed=13)).sum().backward()
    sight = seen[""]
    yield sight.importance
    yield sight.relevance.keys
    yield sight.relevance.queries


def edited(rng, number):
    """The output of a layer whose attention is edited, and its gradient."""
    torch.manual_seed(number)
    layer = nn.MultiheadAttention(6, 3, batch_first=True, dtype=torch.float64)
    x = randn(2, 7, 6, seed=number).requires_grad_()
    name = list(EDITS)[number % len(EDITS)]
    with sl.edit(layer, **EDITS[name]):
        output = layer(x, x, x, need_weights=False)[0]
    yield output.detach()
    yield from torch.autograd.grad((output * randn(*output.shape, seed=17)).sum(), x)


def layers(rng, number):
    """An encoder or decoder layer, with its look."""
    torch.manual_seed(number)
    kind = (sl.nn.TransformerEncoderLayer, sl.nn.TransformerDecoderLayer)[number % 2]
    layer = kind(6, 3, 11, batch_first=True, norm_first=rng.random() < 0.5, dtype=torch.float64).eval()
    x, memory = randn(2, 7, 6, seed=number), randn(2, 5, 6, seed=number + 1)
    with torch.no_grad(), sl.watch(layer) as seen:
        yield layer(x, memory) if number % 2 else layer(x)
    for name, calls in seen.items():
        yield from (calls[0].received, calls[0].entropy) if name else ()


def positions(rng, number):
    """Tables, shifts and rotations."""
    length, width = rng.randint(1, 31), 2 * rng.randint(1, 6)
    yield sl.positions.sinusoidal(length, width)
    yield sl.positions.sinusoidal_2d(size(rng, 6), size(rng, 6), 2 * width)
    yield sl.positions.shift_matrix(rng.randint(-9, 9), width)
    q, k, _ = qkv((2, 3), length, length, width)
    yield from sl.positions.Rotary(width)(q, k, offset=rng.randint(0, 5))


def equation(rng, number):
    """The equation with its weights; the score functions."""
    x = inputs(rng, number=number, dtypes=(torch.float64,), scores=SCORES[3:], masks=("nothing",))
    k, v = (y.repeat_interleave(x.q.size(1) // y.size(1), 1) for y in (x.k, x.v))
    ones = torch.ones(x.t, x.s).tril()
    yield from sl.reference.scaled_dot_product_attention(x.q, k, v, rng.choice([None, ones]))
    yield x.score(x.q, k).detach()


def aligned(rng, number):
    """The key of each query, monotone."""
    x = inputs(rng, number=number, dtypes=(torch.float64,), masks=("nothing", "bias"), scores=("scaled_dot",))
    with torch.no_grad():
        yield sl.align(x.look(), method=rng.choice(["dtw", "peak"]), filter_width=rng.choice([1, 3]))


FAMILIES = {
    attention: 90, statistics: 80, later: 100, averaged: 15, differences: 10, gradients: 25, watched: 30,
    padded: 12, of_the_backward: 6, edited: 10, layers: 6, positions: 6, equation: 6, aligned: 4,
}  # fmt: skip
CALLS = [(family, number) for family, n in FAMILIES.items() for number in range(n)]


def name_of(call):
    """A call's name in the file, ``later/017``."""
    family, number = call
    return f"{family.__name__}/{number:03}"


def answers(call):
    """What a call answers, tensor by tensor."""
    family, number = call
    rng = random.Random(name_of(call))  # noqa: S311 - of a text it is the same on every machine
    return list(family(rng, number))


if __name__ == "__main__":
    assert len(CALLS) == N_CALLS
    torch.set_num_threads(1)
    found = {
        f"{name_of(call)}/{i}": x.detach().contiguous().clone()
        for call in CALLS
        for i, x in enumerate(answers(call))
    }
    save_file(found, HERE)
