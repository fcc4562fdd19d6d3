# ruff: noqa: SIM905
"""Train a small Transformer to spell numbers, search with a beam, and draw the tree.

Usage: python -m workshop.figures.beam_search train [--json FILE]        about ten minutes on one core
       python -m workshop.figures.beam_search draw [--json FILE] [--out PICTURE]

347 is "three hundred and forty seven" in two of three examples, and in the others it has no "and", at
random: the model has to keep both, and so has the beam.
"""

import argparse
import json
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import sightline as sl
from sightline.data.tokens import BOS, EOS, PAD
from sightline.decode.beam import beam
from sightline.decode.trace import BeamStep, BeamTrace
from sightline.show.beam_tree import beam_tree
from workshop import PICTURES

HERE = Path(__file__).parent
ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen".split()
ONES += "sixteen seventeen eighteen nineteen".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
WORDS = ["", "<s>", "end", "?", *ONES, *TENS, "hundred", "thousand", "and"]  # by id; the first are special
FIRST_DIGIT = 4
NUMBER, STEPS, BATCH = 4347, 2500, 64


def below_hundred(n: int) -> list[str]:
    """The words of 1 to 99."""
    return [ONES[n]] if n < 20 else [TENS[n // 10 - 2], *([ONES[n % 10]] if n % 10 else [])]


def spelled(n: int, chance: random.Random) -> list[str]:
    """The words of 1 to 9999, with "and" two times in three."""
    words = [ONES[n // 1000], "thousand"] if n >= 1000 else []
    words += [ONES[n // 100 % 10], "hundred"] if n // 100 % 10 else []
    if n % 100:
        words += (["and"] if words and chance.random() < 2 / 3 else []) + below_hundred(n % 100)
    return words


def batch(numbers: list[int], chance: random.Random) -> tuple[Tensor, Tensor]:
    """Digits with their end, and words with beginning and end, padded."""
    sources = [[FIRST_DIGIT + int(digit) for digit in str(n)] + [EOS] for n in numbers]
    targets = [[BOS, *map(WORDS.index, spelled(n, chance)), EOS] for n in numbers]
    pad = torch.nn.utils.rnn.pad_sequence
    return tuple(pad([torch.tensor(x) for x in rows], True, PAD) for rows in (sources, targets))  # type: ignore[return-value]


def train() -> Any:
    """A translator from digits to words."""
    torch.manual_seed(0)
    chance = random.Random(0)  # noqa: S311
    model = sl.models.Translator(
        sl.models.TranslatorConfig(
            source_vocab_size=FIRST_DIGIT + 10,
            vocab_size=len(WORDS),
            d_model=64,
            n_heads=4,
            n_layers=2,
            d_ff=128,
            dropout=0.0,
            max_length=16,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, STEPS)
    for step in range(STEPS):
        source, target = batch([chance.randint(1, 9999) for _ in range(BATCH)], chance)
        logits = model(source, target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 250 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    return model.eval()


def searched(model: Any) -> list[dict[str, Any]]:
    """The steps of a search, as plain values."""
    source, _ = batch([NUMBER], random.Random(0))  # noqa: S311
    trace = BeamTrace()
    found = beam(model, model.start(source, look=True), width=3, n_best=3, max_length=14, trace=trace)
    for ids, score in zip(found.lists()[0], found.scores[0].tolist(), strict=True):
        print(f"{score:.3f} {' '.join(WORDS[i] for i in ids)}")
    steps = []
    for step in trace.steps:
        weights = (
            None if step.weights is None else [[round(x, 4) for x in row] for row in step.weights.tolist()]
        )
        steps.append(asdict(step) | {"weights": weights})
    return steps


def traced(steps: list[dict[str, Any]]) -> BeamTrace:
    """The search again, from plain values."""
    kept = []
    for step in steps:
        values = {name: tuple(value) for name, value in step.items() if name != "weights"}
        values["ended"] = tuple(tuple(end) for end in step["ended"])
        weights = None if step["weights"] is None else torch.tensor(step["weights"])
        kept.append(BeamStep(weights=weights, **values))
    return BeamTrace(steps=kept)


def main() -> None:
    """Train or draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["train", "draw"])
    parser.add_argument("--json", type=Path, default=HERE / "beam_search.json")
    parser.add_argument("--out", type=Path, default=PICTURES / "beam_search.png")
    given = parser.parse_args()
    if given.what == "train":
        torch.set_num_threads(1)
        given.json.write_text(json.dumps(searched(train()), indent=1) + "\n")
        return
    keys = [*str(NUMBER), "end"]
    title = f"{NUMBER} in words: a beam of 3"
    figure = beam_tree(traced(json.loads(given.json.read_text())), WORDS.__getitem__, keys, title=title)
    figure.savefig(given.out, dpi=100)
    print(given.out)


if __name__ == "__main__":
    main()
