"""Random models, watched and not: the same output bit for bit, the same gradients, the same exceptions.

Plain, under the transforms of ``torch.func``, on the meta device, as fake tensors, with autocast, without
autograd; of no items, no tokens, no heads and no width.
"""

import copy
import functools
import warnings

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import sightline as sl
from tests.sandbox import run

OPTIONS = (
    {},
    {},
    {"keep": True},
    {"keep": "cpu"},
    {"grad": True},
    {"measure": sl.Look(map=3, top=2)},
    {"every": 2},
    {"limit": 0},
)
KINDS = (
    *(
        "plain",
        "plain",
        "no grad",
        "inference",
        "autocast",
        "backward",
        "checkpoint",
        "meta",
        "fake",
        "empty",
    ),
    *("vmap", "grad", "per-sample", "jvp", "vjp", "jacrev", "functional call", "ensemble", "nested", "cond"),
)


class Attention(nn.Module):
    """``nn.MultiheadAttention``, with or without its weights."""

    def __init__(self, e, heads, *, weights):
        super().__init__()
        self.attention, self.weights = nn.MultiheadAttention(e, heads, batch_first=True), weights

    def forward(self, x):
        return self.attention(x, x, x, need_weights=self.weights)[0]


class Fused(nn.Module):
    """torch's kernel; any number of heads, none and no width among them."""

    def __init__(self, heads, d, *, causal, broken=False):
        super().__init__()
        self.heads, self.d, self.causal, self.broken = heads, d, causal, broken
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        parts = (
            x.new_ones(()) * self.scale * x[..., None, :, :1].expand(*x.shape[:-2], self.heads, x.size(-2), 1)
        )
        parts = parts.expand(*parts.shape[:-1], self.d)
        found = nn.functional.scaled_dot_product_attention(parts, parts, parts, is_causal=self.causal)
        if self.broken:
            raise LookupError("broken on purpose")
        return found


class ByHand(nn.Module):
    """softmax(q k) v in plain operators."""

    def __init__(self, e):
        super().__init__()
        self.q, self.k = nn.Linear(e, e), nn.Linear(e, e)

    def forward(self, x):
        scores = self.q(x) @ self.k(x).transpose(-2, -1) / max(1, x.size(-1)) ** 0.5
        return scores.softmax(-1) @ x


class Own(nn.Module):
    """``sl.attention`` and ``sl.nn``."""

    def __init__(self, e, heads):
        super().__init__()
        self.layer = sl.nn.TransformerEncoderLayer(e, heads, 5, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.layer(x) + sl.attention(x, x, x, sl.masks.causal())


@functools.cache
def _dies_of_no_heads():
    """Whether torch's own kernel ends the process where there is no head: 2.11's divides by their number."""

    def call():
        torch.nn.functional.scaled_dot_product_attention(*torch.zeros(3, 2, 0, 5, 3))

    return run(call).code != 0


def _model(chance):
    heads = chance.choice([1, 2, 3])
    e = heads * chance.choice([2, 4, 5])
    kind = chance.choice(["encoder", "attention", "fused", "fused", "broken", "by hand", "own"])
    if kind == "encoder":
        layer = nn.TransformerEncoderLayer(
            e, heads, 7, dropout=chance.choice([0.0, 0.3]), batch_first=True, norm_first=chance.random() < 0.5
        )
        model = nn.TransformerEncoder(layer, chance.choice([1, 2]), enable_nested_tensor=False)
    elif kind == "attention":
        model = Attention(e, heads, weights=chance.random() < 0.5)
    elif kind == "by hand":
        model = ByHand(e)
    elif kind == "own":
        model = Own(e, heads)
    else:
        heads = chance.choice([0, 1, 2, 3])
        sizes = heads or int(_dies_of_no_heads()), chance.choice([0, 1, 2, 5])
        model = Fused(*sizes, causal=chance.random() < 0.5, broken=kind == "broken")
    return model.train(chance.random() < 0.5), e


def watched(chance):
    """A case: what it is, and what is wrong with it."""
    model, e = _model(chance)
    shape = (chance.choice([0, 1, 2, 3]), chance.choice([0, 1, 1, 2, 5, 7]), e)
    kind, options = chance.choice(KINDS), chance.choice(OPTIONS)
    x = torch.randn(shape)
    state = torch.get_rng_state()
    wanted, problem = _run(model, x, kind)
    after = torch.get_rng_state()
    torch.set_rng_state(state)
    with sl.watch(model, **options) as seen:
        found, again = _run(model, x, kind)
    case = f"watch {type(model).__name__} {shape} {kind} train={model.training} {options}"
    faults = [] if torch.equal(after, torch.get_rng_state()) else ["other random numbers"]
    if problem != again:
        return case, [*faults, f"unwatched {problem}, watched {again}"]
    try:
        repr(seen)
        seen.unseen()
    except Exception as failure:  # noqa: BLE001 - looking at what was seen is no failure either
        faults.append(f"seen: {failure!r:.100}")
    wrong = _differences(wanted, found)
    # Without autograd, or with weights that need no gradients (an ensemble's), torch may take its whole-layer
    # fast path, which is off in the block: then the output is that of torch without it, bit for bit.
    return case, faults + (wrong and _differences(_slowly(model, x, kind), found))


def _slowly(model, x, kind):
    """The outputs of the unwatched model without torch's fast path."""
    was = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        return _run(model, x, kind)[0]
    finally:
        torch.backends.mha.set_fastpath_enabled(was)


def _differences(wanted, found):
    return [wrong for pair in zip(wanted or (), found or (), strict=True) for wrong in _difference(*pair)]


def _difference(wanted, found):
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return ["another shape"]
    if wanted.is_meta or type(wanted) is not torch.Tensor:
        return []
    same = torch.equal(found.isnan(), wanted.isnan()) and torch.equal(found.nan_to_num(), wanted.nan_to_num())
    return [] if same else ["another output"]


def _run(model, x, kind):
    """The outputs, or what was raised."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tuple(y.detach() if y.requires_grad else y for y in _outputs(model, x, kind)), None
    except Exception as problem:  # noqa: BLE001 - the same is expected of the watched one
        return None, f"{type(problem).__name__}: {str(problem)[:80]}"


def _outputs(model, x, kind):
    if kind == "no grad":
        with torch.no_grad():
            return (model(x),)
    if kind == "inference":
        with torch.inference_mode():
            return (model(x).clone(),)
    if kind == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            return (model(x),)
    if kind == "backward":
        own = x.clone().requires_grad_()
        return torch.autograd.grad(model(own).square().sum(), own)
    if kind == "checkpoint":
        own = x.clone().requires_grad_()
        y = torch.utils.checkpoint.checkpoint(model, own, use_reentrant=False)
        return (y, *torch.autograd.grad(y.square().sum(), own))
    if kind == "meta":
        return (copy.deepcopy(model).to("meta")(x.to("meta")),)
    if kind == "fake":
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            y = model(mode.from_tensor(x))
        return (torch.empty(y.shape, dtype=y.dtype, device="meta"),)
    if kind == "empty":
        with torch.no_grad():
            return (model(x[:0]), model(x[:, :0]), model(x))
    if kind == "cond":
        return (model(x), model(x * 2), model(x[:1]))
    return _transformed(model, x, kind)


def _transformed(model, x, kind):
    """Under the transforms of ``torch.func``."""
    func, weights = torch.func, dict(model.named_parameters())

    def call(weights, x):
        return func.functional_call(model, weights, (x,))

    def loss(weights, x):
        return call(weights, x[None]).square().sum()

    if kind == "vmap":
        return (func.vmap(model, randomness="same")(x[None].expand(2, *x.shape)),)
    if kind == "grad":
        return tuple(func.grad(lambda x: model(x).square().sum())(y) for y in (x,))
    if kind == "per-sample":
        each = func.vmap(func.grad(loss), in_dims=(None, 0), randomness="same")(weights, x)
        return tuple(each.values())
    if kind == "jvp":
        return func.jvp(model, (x,), (torch.ones_like(x),))
    if kind == "vjp":
        y, pull = func.vjp(model, x)
        return (y, *pull(torch.ones_like(y)))
    if kind == "jacrev":
        return (func.jacrev(lambda x: model(x).sum((0, 1)))(x),)
    if kind == "functional call":
        return (call({name: 2 * w for name, w in weights.items()}, x),)
    if kind == "ensemble":
        stacked = {name: torch.stack([w, 2 * w]).detach() for name, w in weights.items()}
        return (func.vmap(call, in_dims=(0, None), randomness="same")(stacked, x),)
    if kind == "nested":
        with sl.watch(model):
            return (model(x),)
    return (model(x),)
