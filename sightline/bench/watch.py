"""``bench watch``: whole models, watched, listened to and blind, and asked for their weights.

Three calls of one model take turns. *Blind* is the model as it comes. *Listening* is the same inside a watch
that measures nothing: what it costs to notice every attention. *sightline* is the same watched, with the
default measures: what it takes beyond listening is the looking. Every call starts from an idle GPU, because
the time that Python needs is part of the cost: behind a GPU that is still at work it would not show.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import sightline as sl
from sightline.bench.case import OURS, Case, Comparison, Contestant, TimedCase
from sightline.bench.result import CostBar
from sightline.bench.watch_models import ModelUse, first_tensor

LISTENING = "listening"
_NOTHING = sl.Look(received=False, entropy=False, peak=False)
_EAGER_NEEDS = 115e9  # bytes that eager attention takes at 16,384 tokens
_EAGER_TOKENS = {"cuda": 16384, "cpu": 512}  # the length at which a Llama is asked for its weights as well

# The most a watched model may take, in times of the blind one; None: measured, nothing to reach.
_LENGTHS = tuple(1 << n for n in range(7, 17))  # the plot's
_LLAMA_MOST = {512: 1.6, 2048: 1.5, 4096: 1.35, 16384: 1.22}


def cases(device: torch.device, *, quick: bool = False) -> list[Case]:
    """List the cases, the plot's lengths last; ``quick`` takes fewer tokens."""
    return [_case(device, use, most) for use, most in _uses(device, quick=quick)]


def _uses(device: torch.device, *, quick: bool) -> list[tuple[ModelUse, float | None]]:
    bert = partial(ModelUse, kind="BERT", n_layers=12, d_model=768)
    if device.type != "cuda":
        encoder = partial(ModelUse, kind="encoder", n_layers=6, d_model=512)
        llama = ModelUse(kind="Llama", tokens=128 if quick else 512, n_layers=2, d_model=2048)
        uses = [
            (encoder(tokens=128), 1.4),
            (encoder(tokens=512), 1.6),
            (bert(tokens=128), None),
            (llama, None),
        ]
        return uses[::3] if quick else uses
    encoder = partial(ModelUse, kind="encoder", n_layers=6, d_model=1024)
    llamas = partial(ModelUse, kind="Llama", n_layers=8, d_model=2048)
    return [
        (encoder(tokens=512), 2.0),
        (bert(tokens=128), 2.0),
        (bert(batch=8, tokens=512), 1.5),
        *((llamas(tokens=t), _LLAMA_MOST.get(t)) for t in _LENGTHS if t <= (4096 if quick else t)),
    ]


def _case(device: torch.device, use: ModelUse, most: float | None) -> TimedCase:
    return TimedCase(
        name=f"{device} watch {use}",
        device=device,
        setup=partial(compare, device, use),
        cost=CostBar(peer="blind", most=most),
    )


def compare(device: torch.device, use: ModelUse) -> Comparison:
    """A model watched, listened to and blind; a Llama of one length also eager with ``output_attentions``."""
    model, call = use.build(device)

    def watched(measure: sl.Look) -> Tensor:
        with sl.watch(model, measure=measure):
            output: Tensor = call()
        return output

    with torch.no_grad():
        blind, seen = call(), watched(sl.Look())
    same = "the same to the bit" if torch.equal(blind, seen) else f"within {(blind - seen).abs().max():.0e}"
    notes = [
        f"the output is {same} watched and blind",
        f"{LISTENING}: watched with nothing measured; what sightline takes beyond it is the looking",
    ]
    runs: dict[str, Callable[[], Any]] = {
        OURS: partial(watched, sl.Look()),
        LISTENING: partial(watched, _NOTHING),
        "blind": call,
    }
    if use.kind == "Llama" and use.tokens == _EAGER_TOKENS[device.type]:
        if device.type == "cpu" or torch.cuda.mem_get_info(device)[0] > _EAGER_NEEDS:
            runs["eager"] = use.build(device, eager=True)[1]
            notes.append("eager: output_attentions=True, and the sum over queries of what comes out")
        else:
            notes.append("eager with output_attentions is left out: too little memory is free")
    contestants = (
        Contestant(name=name, run=partial(_from_idle, device, run), context=torch.no_grad)
        for name, run in runs.items()
    )
    return Comparison(contestants=tuple(contestants), notes=tuple(notes))


def _from_idle(device: torch.device, run: Callable[[], Any]) -> tuple[Tensor, ...]:
    """Wait for the GPU, then run."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return first_tensor(run())
