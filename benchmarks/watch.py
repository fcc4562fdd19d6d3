"""Whole models: watched, listened to, alone, and asked for their weights.

*blind* is the model as it comes, *listening* the same inside a watch that measures nothing. Every call starts
from an idle GPU, because the time that Python needs is part of the cost: behind a GPU that is still at work
it would not show.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import sightline as sl
from benchmarks.harness import OURS, Case, Contest, draw

_NOTHING = sl.Look(received=False, entropy=False, peak=False)
_EAGER_NEEDS = 115e9  # bytes that eager attention takes at 16,384 tokens
_EAGER_TOKENS = {"cuda": 16384, "cpu": 512}  # where a Llama is asked for its weights as well
_LLAMA_MOST = {512: 1.6, 2048: 1.5, 4096: 1.35, 16384: 1.22}

# kind, B, T, layers, width, the most that watching may cost
Use = tuple[str, int, int, int, int, float | None]
ON_CPU: tuple[Use, ...] = (
    ("encoder", 1, 128, 6, 512, 1.4),
    ("encoder", 1, 512, 6, 512, 1.6),
    ("BERT", 1, 128, 12, 768, None),
    ("Llama", 1, 512, 2, 2048, None),
)
ON_GPU: tuple[Use, ...] = (
    ("encoder", 1, 512, 6, 1024, 2.0),
    ("BERT", 1, 128, 12, 768, 2.0),
    ("BERT", 8, 512, 12, 768, 1.5),
    *(("Llama", 1, 1 << n, 8, 2048, _LLAMA_MOST.get(1 << n)) for n in range(7, 17)),
)


def cases(device: torch.device, quick: bool) -> list[Case]:
    """List the cases; ``quick`` takes fewer tokens."""
    uses = ON_GPU if device.type == "cuda" else ON_CPU
    return [
        Case(name=f"watch {kind} {b} x {t}", setup=partial(compare, device, *shape), peer="blind", most=most)
        for *shape, most in uses
        for kind, b, t, *_ in [shape]
        if not quick or t <= (4096 if device.type == "cuda" else 128)
    ]


def compare(device: torch.device, kind: str, b: int, t: int, n_layers: int, d_model: int) -> Contest:
    """Return a model watched, listened to and alone; a Llama of one length also eager with its weights."""
    build = partial(_model, device, kind, b, t, n_layers, d_model)
    model, call = build()

    def watched(measure: sl.Look) -> Any:
        with sl.watch(model, measure=measure):
            return call()

    with torch.no_grad():
        alone, seen = call(), watched(sl.Look())
    same = "the same to the bit" if torch.equal(alone, seen) else f"within {(alone - seen).abs().max():.0e}"
    notes = [f"the output is {same} watched and blind"]
    runs = {OURS: partial(watched, sl.Look()), "listening": partial(watched, _NOTHING), "blind": call}
    if kind == "Llama" and t == _EAGER_TOKENS[device.type]:
        if device.type == "cpu" or torch.cuda.mem_get_info(device)[0] > _EAGER_NEEDS:
            runs["eager"] = build(eager=True)[1]
            notes.append("eager: output_attentions=True, and the sum over queries of what comes out")
        else:
            notes.append("eager with output_attentions is left out: too little memory is free")
    idle = {name: partial(_from_idle, device, run) for name, run in runs.items()}
    return Contest(runs=idle, notes=tuple(notes))


def _from_idle(device: torch.device, run: Callable[[], Any]) -> tuple[Tensor, ...]:
    """Wait for the GPU, then run; sums up the weights if there are any."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    found = run()
    if isinstance(found, Tensor):
        return (found,)
    return (found.last_hidden_state, *(x.sum(-2) for x in found.attentions))


def _model(
    device: torch.device, kind: str, b: int, t: int, n_layers: int, d_model: int, *, eager: bool = False
) -> tuple[nn.Module, Callable[[], Any]]:
    """A model of random weights in eval, and a call of it; ``eager`` asks it for its weights."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    if kind == "encoder":
        layer = nn.TransformerEncoderLayer(d_model, d_model // 64, batch_first=True)
        encoder = nn.TransformerEncoder(layer, num_layers=n_layers).to(device, dtype).eval()
        x = draw(0, b, t, d_model, device=device, dtype=dtype)
        return encoder, lambda: encoder(x)
    import transformers

    how: dict[str, Any] = {
        "hidden_size": d_model,
        "num_hidden_layers": n_layers,
        "num_attention_heads": max(1, d_model // (128 if kind == "Llama" else 64)),
        "max_position_embeddings": max(512, t),
        "attn_implementation": "eager" if eager else "sdpa",
    }
    with torch.device(device):
        if kind == "Llama":
            how |= {"intermediate_size": d_model * 43 // 16, "vocab_size": 32000, "use_cache": False}
            model = transformers.LlamaModel(transformers.LlamaConfig(**how))
        else:
            model = transformers.BertModel(transformers.BertConfig(intermediate_size=4 * d_model, **how))
        ids = torch.randint(0, 1000, (b, t))
    model = model.to(dtype).eval()
    if eager:
        return model, lambda: model(ids, output_attentions=True)
    return model, lambda: model(ids).last_hidden_state
