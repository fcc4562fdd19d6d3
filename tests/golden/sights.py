"""Write the golden sights anew: ``python -m tests.golden.sights``; only where a new format is meant.

Each file is as small as it can be, and was written by the code of its day. ``answers.safetensors`` has what
each of them answered: later code must read the files, and answer the same.
"""

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import sightline as sl
from tests.oracle.draw import qkv, randn
from tests.oracle.masks import MASKS
from tests.oracle.questions import QUESTIONS, STATISTICS
from tests.watch.flash_stand_ins import HUB

HERE = Path(__file__).parent / "sights"
LEAD, T, S, D = (2, 4), 5, 7, 3


class Attend(nn.Module):
    """``sl.attention`` in a module."""

    def forward(self, *args, **options):
        return sl.attention(*args, **options)


class Flash(nn.Module):
    """A kernel with attention sinks in a module."""

    def forward(self, q, k, v, sink):
        return HUB(q, k, v, None, None, None, D**-0.5, True, -1, -1, sink)[0]


class ByHand(nn.Module):
    """The weights computed in single steps."""

    def forward(self, q, k, v):
        return (q @ k.mT * D**-0.5).softmax(-1) @ v


def looked(mask, **options):
    """A look at grouped queries under a mask."""
    return sl.look(*qkv(LEAD, T, S, D, kv_heads=2), MASKS[mask](LEAD, T, S)[0], **options)


def sights():
    """Sights by the names of their files, and whether q and k are written too."""
    measure = sl.Look(map=(2, 3), top=2)
    yield "masked", looked("all_together"), True
    yield "measured", looked("causal_and_padding", measure=measure, keep=False), False
    yield "half", sl.look(*qkv(LEAD, T, S, D, dtype=torch.bfloat16), sl.masks.causal()), True
    yield "averaged", looked("window").mean_heads(), True
    yield "cut", looked("bias_of_heads")[1, 1:3], True


def recordings():
    """Recordings by the names of their files: steps, padding, sinks, stored weights."""
    q, k, v = qkv((2, 3), S, S, D)
    model = Attend()
    with sl.watch(model, keep=True, tokens=[f"word{i}" for i in range(S)]) as steps:
        for a, b in ((0, 4), (4, 5), (5, 6), (6, 7)):
            model(q[..., a:b, :], k[..., :b, :], v[..., :b, :], sl.masks.causal())
    yield "steps", steps
    with sl.watch(model, keep=True, lengths=[4, S]) as padded:
        model(q, k, v, sl.masks.causal() & sl.masks.padding([4, S]))
    yield "padded", padded
    with sl.watch(model, every=2) as some:
        for b in range(3, S):
            model(q[..., b - 1 : b, :], k[..., :b, :], v[..., :b, :])
    yield "every second", some
    flash = Flash()
    with sl.watch(flash, keep=True) as sinks:
        flash(*(x.transpose(1, 2) for x in (q, k, v)), randn(3, seed=9, dtype=torch.float32))
    yield "sinks", sinks
    by_hand = ByHand()
    with sl.watch(by_hand, keep=True) as stored:
        by_hand(q, k, v)
    yield "stored", stored


def asked(sight):
    """Everything that a sight answers, by the names of the questions."""
    for name, question in (QUESTIONS if sight.kept_nbytes else STATISTICS).items():
        if question.is_average or not sight.averaged:
            yield name, question.ask(sight)
    for name in ("map", "top", "top_at"):
        if name in sight.statistics:
            yield f"measured {name}", sight.statistics[name]


def opened(file):
    """The sights that a file answers from, by names of their own."""
    if file.name.startswith("sight"):
        yield "", sl.Sight.load(file)
        return
    seen = recording(file)
    for name, calls in seen.items():
        yield from ((f"{name}[{i}]", call) for i, call in enumerate(calls))
        if len(calls) > 1 and all(call.kept_nbytes for call in calls):
            yield f"{name} stacked", seen.stack(name)


def recording(file):
    """What was seen, read by the class that ``sl.watch`` gives."""
    with sl.watch(nn.Identity()) as seen:
        pass
    return type(seen).load(file)


def of_format_1(path):
    """Write a file of the first format, which said less of itself."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = json.loads(file.metadata()["about"])
    for name in ("source", "padding", "tokens", "skipped", "is_masked", "after", "parents"):
        del about[name]
    metadata = {"format": "sightline.Sight/1", "about": json.dumps(about)}
    save_file(tensors, path.with_name("sight of format 1.safetensors"), metadata=metadata)


def answers():
    """What every file answers."""
    found = {}
    for file in sorted(HERE.glob("*.safetensors")):
        if file.stem != "answers":
            for call, sight in opened(file):
                found |= {f"{file.stem}/{call}/{name}": x for name, x in asked(sight)}
    return found


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    with torch.no_grad():
        for name, sight, keep in sights():
            sight.save(HERE / f"sight {name}.safetensors", keep=keep)
        of_format_1(HERE / "sight measured.safetensors")
        for name, seen in recordings():
            keep = all(call.kept_nbytes for _, calls in seen.items() for call in calls)
            seen.save(HERE / f"seen {name}.safetensors", keep=keep)
    save_file({name: x.contiguous() for name, x in answers().items()}, HERE / "answers.safetensors")
