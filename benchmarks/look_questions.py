"""Questions asked of a sight that exists, so that their time comes on top; and where no matrix fits.

A ratio of 0.5 to ``blind`` means that a question takes half the time of the kernel alone.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sightline as sl
from benchmarks.harness import OURS, Case, Contest, draw
from sightline.look import flow
from sightline.look.groups import read_groups

Shape = tuple[int, int, int, int]  # B, H, T, D

QUESTIONS = {"mass of 64 groups": 0.6, "received from 64 queries": 0.05, "offsets": 0.9}  # most, on a GPU
GROUPS, WINDOW, DISTANCES = 64, 64, 4096
NOTHING = sl.Look(received=False, entropy=False, peak=False)


def cases(device: torch.device, quick: bool) -> list[Case]:
    """List the cases; ``quick`` takes fewer tokens."""
    return _questions(device, quick) + _long(device, quick)


def dtype_on(device: torch.device) -> torch.dtype:
    """Return what users would choose there."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def exact_rows(q: Tensor, k: Tensor, *, causal: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield queries and their weights in float64, of the first head."""
    q, k = q[:1, :1].double(), k[:1, :1].double()
    keys = torch.arange(k.size(2), device=q.device)
    for queries in keys.split(1024):
        scores = (q[:, :, queries] @ k.mT) * q.size(-1) ** -0.5
        if causal:
            scores.masked_fill_(keys > queries[:, None], -torch.inf)
        yield queries, scores.softmax(-1)


class _Sdpa(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _questions(device: torch.device, quick: bool) -> list[Case]:
    """What is asked afterwards, of one sight and of one very long one."""
    gpu = device.type == "cuda"
    shape: Shape = (1, 16, 4096 if quick else 16384, 128) if gpu else (1, 4, 256 if quick else 2048, 64)
    words = f"H={shape[1]} T={shape[2]} D={shape[3]} causal"
    found = [
        Case(
            name=f"{name} beside blind {words}",
            setup=partial(question, device, name, shape),
            peer="blind",
            most=most if gpu else None,
        )
        for name, most in QUESTIONS.items()
    ]
    setup = partial(relevance, device, shape)
    found.append(Case(name=f"relevance beside backward {words}", setup=setup, most=1.5 if gpu else None))
    most = 1.03 if gpu else None
    found.append(
        Case(name="ten monitored steps beside ten", setup=partial(monitored, device, quick), most=most)
    )
    million = (1 << 15 if quick else 1 << 20) if gpu else 2048
    for name in (*QUESTIONS, "relevance"):
        alone = partial(question if name in QUESTIONS else relevance, device)
        setup = partial(alone, *([name] if name in QUESTIONS else []), (1, 1, million, 128), alone=True)
        found.append(Case(name=f"{name} of one head T={million}", setup=setup))
    return found


def question(device: torch.device, name: str, shape: Shape, *, alone: bool = False) -> Contest:
    """Return one question of a kept sight, beside the kernel alone."""
    q, k, v = (draw(i, *shape, device=device, dtype=dtype_on(device)) for i in range(3))
    t, causal = shape[2], sl.masks.causal()
    sight = sl.look(q, k, v, causal, measure=NOTHING)
    ids = torch.arange(t, device=device) * 7919 % GROUPS  # scattered over the sequence
    groups = read_groups(ids, t, device)  # once for all layers
    asked: dict[str, Callable[[], Tensor]] = {
        "mass of 64 groups": lambda: sight.mass(groups),
        "received from 64 queries": lambda: sight.received_from((t - WINDOW, t)),
        "offsets": lambda: sight.offsets(min(DISTANCES, t)),
    }
    ask = asked[name]
    runs: dict[str, Any] = {OURS: lambda: (ask(),)}
    if alone:
        return Contest(runs=runs, notes=(f"the matrix takes {4 * t**2 / 1e9:.0f} GB in float32",))
    return Contest(
        runs=runs | {"blind": lambda: (sl.attention(q, k, v, causal),)},
        exact=partial(exact_answer, name, q, k, ids),
        part=lambda results: [x[:1, :1] for x in results],
        unchecked=("blind",),
        slack=1e-4,
    )


def exact_answer(name: str, q: Tensor, k: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
    """Return the answer for the first head in float64."""
    t = q.size(2)
    keys, groups = torch.arange(t, device=q.device), []
    received = q.new_zeros(1, 1, t, dtype=torch.float64)
    offsets = q.new_zeros(1, 1, min(DISTANCES, t), dtype=torch.float64)
    for queries, weights in exact_rows(q, k, causal=True):
        groups.append(weights.new_zeros(*weights.shape[:3], GROUPS).index_add_(-1, ids, weights))
        received += weights[:, :, queries >= t - WINDOW].sum(2)
        apart = queries[:, None] - keys
        near = (apart >= 0) & (apart < offsets.size(-1))
        offsets[0, 0].index_add_(0, apart[near], weights[0, 0][near])
    answers = {"received from 64 queries": received, "offsets": offsets}
    return (torch.cat(groups, 2) if name.startswith("mass") else answers[name],)


def relevance(device: torch.device, shape: Shape, *, alone: bool = False) -> Contest:
    """Return the backward pass of one attention and the relevance of its keys, beside the backward pass."""
    q, k, v = (draw(i, *shape, device=device, dtype=dtype_on(device)).requires_grad_() for i in range(3))
    model, upstream = _Sdpa(), torch.randn_like(v)
    with sl.watch(model, grad=True, measure=NOTHING) as seen:
        output = model(q, k, v)
    (sight,) = seen.calls("")

    def backward() -> tuple[Tensor, ...]:
        return torch.autograd.grad(output, (q, k, v), upstream, retain_graph=True)

    runs = {OURS: lambda: (*backward(), sight.relevance.keys), "backward": backward}
    return Contest(runs={OURS: runs[OURS]} if alone else runs, grad=True)


def monitored(device: torch.device, quick: bool) -> Contest:
    """Return ten training steps of an encoder with a monitor that looks at one of them, and ten without."""
    gpu = device.type == "cuda"
    d_model, t, b = (1024, 2048, 8) if gpu else (128, 16 if quick else 128, 4)
    x = draw(0, b, t, d_model, device=device, dtype=dtype_on(device))

    def training() -> tuple[nn.Module, Callable[[], tuple[Tensor, ...]]]:
        torch.manual_seed(0)
        layer = sl.nn.TransformerEncoderLayer(d_model, 16, batch_first=True)
        model = sl.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to(device, x.dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

        def steps() -> tuple[Tensor, ...]:
            for _ in range(10):
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
            return (loss.detach(),)

        return model, steps

    model, watched = training()
    around = {OURS: partial(sl.Monitor, model, 10)}
    return Contest(runs={OURS: watched, "unmonitored": training()[1]}, grad=True, around=around)


def _long(device: torch.device, quick: bool) -> list[Case]:
    """A flow through layers and a cache that forgets, at lengths whose matrix does not fit."""
    gpu = device.type == "cuda"
    tokens = (4096 if quick else 32768) if gpu else (256 if quick else 2048)
    found = [
        Case(
            name=f"{name} of one token 8 layers T={tokens}",
            setup=partial(through_layers, device, name, tokens),
        )
        for name in ("rollout", "relevance")
    ]
    name, most = f"evicting a cache beside prefill T={tokens}", 1.35 if gpu else None
    return [*found, Case(name=name, setup=partial(eviction, device, tokens), most=most)]


class _Layer(nn.Module):
    """Self-attention with a residual path."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads, self.attend = n_heads, _Sdpa()
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        result: Tensor = x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))
        return result


def through_layers(device: torch.device, name: str, t: int) -> Contest:
    """Return what reached the last token through all layers, beside the model alone."""
    d_model = 2048 if device.type == "cuda" else 64
    torch.manual_seed(0)
    layers = (_Layer(d_model, max(1, d_model // 128)) for _ in range(8))
    model = nn.Sequential(*layers).to(device, dtype_on(device))
    x, graded = draw(0, 1, t, d_model, device=device, dtype=dtype_on(device)), name == "relevance"

    def alone() -> tuple[Tensor, ...]:
        y = model(x)
        if graded:
            y[:, -1].float().square().mean().backward()
        return (y.detach(),)

    def ours() -> tuple[Tensor, ...]:
        with sl.watch(model, keep=False if graded else "cpu", grad=graded, measure=NOTHING) as seen:
            alone()
        trace = flow.relevance if graded else flow.rollout
        return (trace([seen.calls(layer)[0] for layer in seen.names()], token=-1),)

    return Contest(runs={OURS: ours, "model": alone}, grad=graded)


def eviction(device: torch.device, t: int) -> Contest:
    """Return a prefill that keeps an eighth of the keys of every layer, beside the prefill."""
    from transformers import LlamaConfig, LlamaForCausalLM

    gpu = device.type == "cuda"
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=2048 if gpu else 64,
        intermediate_size=5504 if gpu else 128,
        num_hidden_layers=8 if gpu else 2,
        num_attention_heads=16 if gpu else 4,
        num_key_value_heads=4 if gpu else 2,
        max_position_embeddings=t,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = LlamaForCausalLM(config).to(dtype_on(device)).eval()
        prompt = torch.randint(97, (1, t))

    def prefill() -> Any:
        return model(prompt, use_cache=True, logits_to_keep=1).past_key_values

    def evicting() -> tuple[Tensor, ...]:
        with sl.watch(model, keep=True, measure=NOTHING) as seen:
            cache = prefill()
        layers = zip(cache.layers, seen.names(), strict=True)
        return tuple(_keep_most_voted(layer, seen.calls(name)[0]) for layer, name in layers)

    return Contest(runs={OURS: evicting, "prefill": lambda: (prefill().layers[0].keys,)})


def _keep_most_voted(layer: Any, sight: sl.Sight) -> Tensor:
    """Forget the keys of a cache's layer that few looked at; returns the positions of those that stay."""
    t, n_kv_heads = layer.keys.size(2), layer.keys.size(1)
    votes = sight.received_from((t - WINDOW, t), "mean", n_kv_heads=n_kv_heads)
    best = votes[..., : t - WINDOW].topk(max(1, t // 8 - WINDOW)).indices.sort().values
    recent = torch.arange(t - WINDOW, t, device=votes.device).expand(*best.shape[:2], -1)
    index = torch.cat([best, recent], -1)
    layer.keys, layer.values = (x.take_along_dim(index[..., None], 2) for x in (layer.keys, layer.values))
    return index
