"""``bench watch``: whole models, watched and blind, and as they are when their weights are asked for.

The Llama-shaped model has eight layers of 2,048 and 16 heads, with random weights: what it computes does not
matter here, what it costs does.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

import sightline as sl
from sightline.bench.case import OURS, Case, Comparison, Contestant, TimedCase
from sightline.bench.look import WATCH_BAR, compare_watched
from sightline.bench.sizes import Sizes

LLAMA_BAR = 1 / 1.35
_EAGER_NEEDS = 115e9  # bytes that eager attention takes at 16,384 tokens


def cases(device: torch.device, *, quick: bool = False) -> list[Case]:
    """List the cases; ``quick`` takes fewer tokens."""
    on_gpu = device.type == "cuda"
    tokens = (2048 if quick else 16384) if on_gpu else (128 if quick else 512)
    return [
        TimedCase(
            name=f"{device} watch encoder T=512",
            device=device,
            bar=WATCH_BAR,
            setup=partial(compare_watched, Sizes.of(device, quick=quick)),
        ),
        TimedCase(
            name=f"{device} watch Llama T={tokens}",
            device=device,
            bar=LLAMA_BAR,
            setup=partial(compare_llama, device, tokens, n_layers=8 if on_gpu else 2),
        ),
    ]


def compare_llama(device: torch.device, tokens: int, *, n_layers: int) -> Comparison:
    """A Llama-shaped model: watched, blind, and eager with ``output_attentions``."""
    from transformers import LlamaConfig, LlamaModel  # noqa: PLC0415

    def model_with(implementation: str) -> Any:
        torch.manual_seed(0)
        shape: Any = LlamaConfig  # its arguments are not typed
        config = shape(
            hidden_size=2048,
            intermediate_size=5504,
            num_hidden_layers=n_layers,
            num_attention_heads=16,
            num_key_value_heads=16,
            vocab_size=32000,
            max_position_embeddings=tokens,
            use_cache=False,
            attn_implementation=implementation,
        )
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        with torch.device(device):
            model: Any = LlamaModel(config)
            return model.to(dtype).eval()

    model = model_with("sdpa")
    ids = torch.randint(0, 32000, (1, tokens), device=device)

    def blind() -> tuple[Tensor, ...]:
        return (model(ids).last_hidden_state,)

    def watched() -> tuple[Tensor, ...]:
        with sl.watch(model):
            return (model(ids).last_hidden_state,)

    with torch.no_grad():
        same = torch.equal(blind()[0], watched()[0])
    contestants = [
        Contestant(name=OURS, run=watched, context=torch.no_grad),
        Contestant(name="blind", run=blind, context=torch.no_grad),
    ]
    notes = [f"the output is {'the same to the bit' if same else 'NOT THE SAME'} watched and blind"]
    if device.type == "cpu" or torch.cuda.mem_get_info(device)[0] > _EAGER_NEEDS:
        slow = model_with("eager")

        def eager() -> tuple[Tensor, ...]:
            seen = slow(ids, output_attentions=True)
            return (seen.last_hidden_state, *(x.sum(-2) for x in seen.attentions))

        contestants.append(Contestant(name="eager", run=eager, context=torch.no_grad))
        notes.append("eager: output_attentions=True, and the sum over queries of what comes out")
    else:
        notes.append("eager with output_attentions is left out: too little memory is free")
    return Comparison(contestants=tuple(contestants), notes=tuple(notes))
