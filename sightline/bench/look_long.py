"""``bench look``, where no matrix fits: a million tokens, a flow through layers, a cache that forgets.

On a GPU the memory column says what a question takes at its peak, beyond what was there before.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sightline as sl
from sightline.bench.case import OURS, Case, Comparison, Contestant, TimedCase
from sightline.look import flow

_LAYERS, _WINDOW, _GROUPS, _DISTANCES = 8, 64, 64, 4096
_EVICTION_BAR = 1 / 1.35
_NOTHING = sl.Look(received=False, entropy=False, peak=False)
_QUESTIONS = ("mass of 64 groups", "received from 64 queries", "offsets", "relevance")


def cases(device: torch.device, *, quick: bool = False) -> list[Case]:
    """List the cases; ``quick`` takes fewer tokens."""
    on_gpu = device.type == "cuda"
    million = ((1 << 15) if quick else (1 << 20)) if on_gpu else (256 if quick else 2048)
    tokens = (4096 if quick else 32768) if on_gpu else (256 if quick else 2048)
    d_model = 2048 if on_gpu else 64
    named: dict[str, tuple[float | None, Callable[[], Comparison]]] = {
        f"{name} of one head T={million}": (None, partial(compare_million, name, million, device))
        for name in _QUESTIONS
    }
    for name in ("rollout", "relevance"):
        case = partial(compare_flow, name, tokens, d_model, device)
        named[f"{name} of one token {_LAYERS} layers T={tokens}"] = (None, case)
    bar = _EVICTION_BAR if on_gpu else None
    named[f"evicting a cache beside prefill T={tokens}"] = (bar, partial(compare_eviction, tokens, device))
    return [
        TimedCase(name=f"{device} {name}", device=device, bar=bar, setup=setup)
        for name, (bar, setup) in named.items()
    ]


class _Sdpa(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


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


def _dtype(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def compare_million(name: str, t: int, device: torch.device) -> Comparison:
    """One question of one head of a very long sequence; nobody else can."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, t, 128, device=device, dtype=_dtype(device)) for _ in range(3))
    ids = torch.arange(t, device=device) * 7919 % _GROUPS
    sight = sl.look(q, k, v, sl.masks.causal(), measure=_NOTHING)
    questions: dict[str, Callable[[], Tensor]] = {
        "mass of 64 groups": lambda: sight.mass(ids),
        "received from 64 queries": lambda: sight.received_from((t - _WINDOW, t)),
        "offsets": lambda: sight.offsets(min(_DISTANCES, t)),
    }
    if name == "relevance":
        model, leaves = _Sdpa(), [x.requires_grad_() for x in (q, k, v)]
        with sl.watch(model, grad=True, measure=_NOTHING) as seen:
            output = model(*leaves)
        output.backward(torch.randn_like(v))
        (watched,) = seen.calls("")
        questions[name] = lambda: watched.relevance.keys
    ask = questions[name]
    ours = Contestant(name=OURS, run=lambda: (ask(),), context=torch.no_grad, checked=None)
    notes = (f"the matrix takes {4 * t**2 / 1e9:.0f} GB in float32, q, k and v {3 * q.nbytes / 1e9:.2f} GB",)
    return Comparison(contestants=(ours,), notes=notes)


def compare_flow(name: str, t: int, d_model: int, device: torch.device) -> Comparison:
    """What reached the last token through all layers, and the model alone."""
    torch.manual_seed(0)
    n_heads = max(1, d_model // 128)
    model = nn.Sequential(*(_Layer(d_model, n_heads) for _ in range(_LAYERS))).to(device, _dtype(device))
    x = torch.randn(1, t, d_model, device=device, dtype=_dtype(device))
    graded = name == "relevance"

    def alone() -> tuple[Tensor, ...]:
        y: Tensor = model(x)
        if graded:
            y[:, -1].float().square().mean().backward()
        return (y.detach(),)

    def ours() -> tuple[Tensor, ...]:
        with sl.watch(model, keep=False if graded else "cpu", grad=graded, measure=_NOTHING) as seen:
            alone()
        sights = [seen.calls(layer)[0] for layer in seen.names()]
        trace = flow.relevance if graded else flow.rollout
        return (trace(sights, token=-1),)

    context = torch.enable_grad if graded else torch.no_grad
    contestants = (
        Contestant(name=OURS, run=ours, context=context, checked=None),
        Contestant(name="model", run=alone, context=context, checked=None),
    )
    note = f"one layer's matrix in float32 takes {4 * n_heads * t**2 / 1e9:.1f} GB"
    return Comparison(contestants=contestants, notes=(note,))


def compare_eviction(t: int, device: torch.device) -> Comparison:
    """A prefill that keeps an eighth of the keys of every layer, beside the prefill."""
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    torch.manual_seed(0)
    on_gpu = device.type == "cuda"
    shape: Any = LlamaConfig  # they are not typed
    build: Any = LlamaForCausalLM
    config = shape(
        vocab_size=97,
        hidden_size=2048 if on_gpu else 64,
        intermediate_size=5504 if on_gpu else 128,
        num_hidden_layers=_LAYERS if on_gpu else 2,
        num_attention_heads=16 if on_gpu else 4,
        num_key_value_heads=4 if on_gpu else 2,
        max_position_embeddings=t,
    )
    with torch.device(device):
        model = build(config).to(_dtype(device)).eval()
    prompt = torch.randint(97, (1, t), device=device)

    def prefill() -> Any:
        return model(prompt, use_cache=True, logits_to_keep=1).past_key_values

    def evicting() -> tuple[Tensor, ...]:
        with sl.watch(model, keep=True, measure=_NOTHING) as seen:
            cache = prefill()
        return tuple(
            _keep_most_voted(layer, seen.calls(name)[0])
            for layer, name in zip(cache.layers, seen.names(), strict=True)
        )

    contestants = (
        Contestant(name=OURS, run=evicting, context=torch.no_grad, checked=None),
        Contestant(
            name="prefill", run=lambda: (prefill().layers[0].keys,), context=torch.no_grad, checked=None
        ),
    )
    notes = (f"votes of the last {_WINDOW} queries keep {t // 8} of {t} keys of every layer",)
    return Comparison(contestants=contestants, notes=notes)


def _keep_most_voted(layer: Any, sight: sl.Sight) -> Tensor:
    """Forget the keys of a cache's layer that few looked at; the positions of those that stay."""
    t, n_kv_heads = layer.keys.size(2), layer.keys.size(1)
    votes = sight.received_from((t - _WINDOW, t), "mean", n_kv_heads=n_kv_heads)
    best = votes[..., : t - _WINDOW].topk(max(1, t // 8 - _WINDOW)).indices.sort().values
    recent = torch.arange(t - _WINDOW, t, device=votes.device).expand(*best.shape[:2], -1)
    index = torch.cat([best, recent], -1)
    layer.keys = layer.keys.take_along_dim(index[..., None], 2)
    layer.values = layer.values.take_along_dim(index[..., None], 2)
    return index
