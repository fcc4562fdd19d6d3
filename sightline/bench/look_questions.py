"""``bench look``, the later questions: mass, windows, distances and relevance beside one blind pass.

A question is asked of a sight that is there already, so its time is what it costs beyond the forward pass.
A ratio of 2 to the blind kernel means that the question takes half the time of a forward pass.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sightline as sl
from sightline.bench.case import OURS, Case, Comparison, Contestant, TimedCase
from sightline.bench.result import CostBar
from sightline.look.groups import read_groups

_GROUPS, _WINDOW, _DISTANCES = 64, 64, 4096
_MOST = {"mass of 64 groups": 0.6, "received from 64 queries": 0.05, "offsets": 0.9}  # of the blind forward
_RELEVANCE_BAR = CostBar(peer="backward", most=1.5)  # with the backward pass, beside it alone
_MONITOR_BAR = CostBar(peer="unmonitored", most=1.03)
_SLACK = 1e-4

Shape = tuple[int, int, int, int]


def cases(device: torch.device, *, quick: bool = False) -> list[Case]:
    """List the cases; ``quick`` takes fewer tokens."""
    on_gpu = device.type == "cuda"
    t = (4096 if quick else 16384) if on_gpu else (256 if quick else 2048)
    shape = (1, 16, t, 128) if on_gpu else (1, 4, t, 64)
    words = f"H={shape[1]} T={t} D={shape[3]} causal"
    listed: list[Case] = [
        _case(
            f"{name} beside blind {words}",
            device,
            CostBar(peer="blind", most=most),
            partial(compare_question, name, shape, device),
        )
        for name, most in _MOST.items()
    ]
    listed.append(
        _case(
            f"relevance beside backward {words}",
            device,
            _RELEVANCE_BAR,
            partial(compare_relevance, shape, device),
        )
    )
    monitored = partial(compare_monitored, device, 16 if quick and not on_gpu else None)
    listed.append(_case("ten monitored steps beside ten", device, _MONITOR_BAR, monitored))
    return listed


def _case(
    name: str, device: torch.device, cost: CostBar | None, setup: Callable[[], Comparison]
) -> TimedCase:
    """A case; the bars are those of a GPU."""
    if cost is not None and device.type != "cuda":
        cost = replace(cost, most=None)
    return TimedCase(name=f"{device} {name}", device=device, setup=setup, cost=cost)


def _draw(shape: Shape, device: torch.device, n: int = 3) -> list[Tensor]:
    generator = torch.Generator(device).manual_seed(shape[2])
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    return [torch.randn(shape, generator=generator, device=device, dtype=dtype) for _ in range(n)]


def compare_question(name: str, shape: Shape, device: torch.device) -> Comparison:
    """One question of a kept sight, beside the blind forward pass."""
    q, k, v = _draw(shape, device)
    t, causal = shape[2], sl.masks.causal()
    n = min(_DISTANCES, t)
    sight = sl.look(q, k, v, causal, measure=sl.Look(received=False, entropy=False, peak=False))
    ids = torch.arange(t, device=device) * 7919 % _GROUPS  # groups are scattered over the sequence
    groups = read_groups(ids, t, device)  # once for all layers
    questions: dict[str, Callable[[], Tensor]] = {
        "mass of 64 groups": lambda: sight.mass(groups),
        "received from 64 queries": lambda: sight.received_from((t - _WINDOW, t)),
        "offsets": lambda: sight.offsets(n),
    }
    ask = questions[name]
    ours = Contestant(name=OURS, run=lambda: (ask(),), context=torch.no_grad, checked=_first_head)
    blind = Contestant(
        name="blind", run=lambda: (sl.attention(q, k, v, causal),), context=torch.no_grad, checked=None
    )
    exact = partial(exact_answer, name, q, k, ids, n)
    notes = ("the blind kernel gives the output alone; the question is asked of a sight that is there",)
    return Comparison(contestants=(ours, blind), exact=exact, slack=_SLACK, notes=notes)


def _first_head(results: object) -> list[Tensor]:
    return [x[:1, :1] for x in results]  # type: ignore[attr-defined]


def exact_answer(name: str, q: Tensor, k: Tensor, ids: Tensor, n: int) -> tuple[Tensor, ...]:
    """The answer for the first head in float64, a thousand queries at a time."""
    q, k = q[:1, :1].double(), k[:1, :1].double()
    t = q.size(2)
    keys = torch.arange(t, device=q.device)
    groups, received, offsets = [], q.new_zeros(1, 1, t), q.new_zeros(1, 1, n)
    for first in range(0, t, 1024):
        queries = keys[first : first + 1024]
        scores = (q[:, :, queries] @ k.mT * q.size(-1) ** -0.5).masked_fill(
            keys > queries[:, None], -torch.inf
        )
        weights = scores.softmax(-1)
        groups.append(weights.new_zeros(*weights.shape[:3], _GROUPS).index_add_(-1, ids, weights))
        received += weights[:, :, queries >= t - _WINDOW].sum(2)
        apart = (queries[:, None] - keys).clamp(min=-1)
        near = (apart >= 0) & (apart < n)
        offsets[0, 0].index_add_(0, apart[near], weights[0, 0][near])
    return {
        "mass of 64 groups": (torch.cat(groups, 2),),
        "received from 64 queries": (received,),
        "offsets": (offsets,),
    }[name]


class _Sdpa(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def compare_relevance(shape: Shape, device: torch.device) -> Comparison:
    """The backward pass of one attention and the relevance of its keys, beside the backward pass."""
    q, k, v = (x.requires_grad_() for x in _draw(shape, device))
    model, upstream = _Sdpa(), torch.randn_like(v)
    with sl.watch(model, grad=True, measure=sl.Look(received=False, entropy=False, peak=False)) as seen:
        output = model(q, k, v)
    (sight,) = seen.calls("")

    def backward() -> tuple[Tensor, ...]:
        return torch.autograd.grad(output, (q, k, v), upstream, retain_graph=True)

    def with_relevance() -> tuple[Tensor, ...]:
        return (*backward(), sight.relevance.keys)

    return Comparison(
        contestants=(
            Contestant(name=OURS, run=with_relevance, checked=None),
            Contestant(name="backward", run=backward, checked=None),
        ),
        notes=("attention alone: no projections, no feed-forward",),
    )


def compare_monitored(device: torch.device, n_tokens: int | None = None) -> Comparison:
    """Ten training steps of an encoder, with a monitor that looks at one of them, and without."""
    on_gpu = device.type == "cuda"
    d_model, t, b = (1024, n_tokens or 2048, 8) if on_gpu else (128, n_tokens or 128, 4)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    x = torch.randn(b, t, d_model, device=device, dtype=dtype)

    def training() -> tuple[nn.Module, Callable[[], tuple[Tensor, ...]]]:
        torch.manual_seed(0)
        layer = sl.nn.TransformerEncoderLayer(d_model, 16, batch_first=True)
        model = sl.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to(device, dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

        def steps() -> tuple[Tensor, ...]:
            losses = []
            for _ in range(10):
                optimizer.zero_grad()
                losses.append(model(x).square().mean())
                losses[-1].backward()
                optimizer.step()
            return (torch.stack(losses).detach(),)

        return model, steps

    model, monitored = training()
    contestants = (
        Contestant(name=OURS, run=monitored, context=partial(sl.Monitor, model, 10), checked=None),
        Contestant(name="unmonitored", run=training()[1], checked=None),
    )
    return Comparison(contestants=contestants, notes=("ten steps, one of them watched",))
