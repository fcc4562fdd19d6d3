# ruff: noqa: S311, SIM905
"""Pretraining in a minute: two small language models learn from text without labels, then from eight labels.

The text is made here: animals eat, machines burn fuel, and every sentence is about one or the other. A
masked model guesses hidden words from both sides, a causal model guesses the next word from those before.
Then each is fine-tuned to tell animals from machines by eight labelled sentences about four names, and asked
about sixteen other names: it can only know them from the text.

Usage: python examples/pretraining.py [--steps 400]
"""

import argparse
import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sightline as sl

NAMES = {
    "animal": "cat dog horse cow goat sheep lion bear wolf fox".split(),
    "machine": "car truck bus train plane boat crane drill pump press".split(),
}
VERBS = {"animal": "eats chases smells bites".split(), "machine": "burns needs leaks pumps".split()}
THINGS = {"animal": "grass meat fish bread".split(), "machine": "fuel oil water steam".split()}
PLACES = "here there today outside often".split()
WORDS = ["<mask>", "the", "old", "small", "loud", *PLACES]
WORDS += [word for part in (NAMES, VERBS, THINGS) for words in part.values() for word in words]
ID = {word: i for i, word in enumerate(WORDS)}
MASK, NAME = ID["<mask>"], 2  # a word that hides another; the place of the name
E, T = 32, 6


def sentence(kind: str, names: list[str], chance: random.Random, *, bare: bool = False) -> list[int]:
    """`the old cat eats fish here`; a bare one hides what it does: `the old cat <mask> <mask> here`."""
    name, adjective = chance.choice(names), chance.choice(["old", "small", "loud"])
    said = ["<mask>", "<mask>"] if bare else [chance.choice(VERBS[kind]), chance.choice(THINGS[kind])]
    return [ID[word] for word in ["the", adjective, name, *said, chance.choice(PLACES)]]


def batch(n: int, chance: random.Random) -> Tensor:
    """Sentences without labels, (n, T)."""
    kinds = [chance.choice(["animal", "machine"]) for _ in range(n)]
    return torch.tensor([sentence(kind, NAMES[kind], chance) for kind in kinds])


def labelled(n: int, which: slice, chance: random.Random) -> tuple[Tensor, Tensor]:
    """Bare sentences about some of the names, and their kinds: the name alone tells."""
    kinds = [i % 2 for i in range(n)]
    rows = [
        sentence(k, NAMES[k][which], chance, bare=True) for k in (["animal", "machine"][i] for i in kinds)
    ]
    return torch.tensor(rows), torch.tensor(kinds)


class LanguageModel(nn.Module):
    """Two Transformer layers with a score for every word at every place, and a head for two classes."""

    def __init__(self, *, is_causal: bool) -> None:
        super().__init__()
        self.is_causal = is_causal
        self.words = nn.Embedding(len(WORDS), E)
        self.places = sl.positions.LearnedPositions(T, E)
        layer = sl.nn.TransformerEncoderLayer(E, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = sl.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.next_word, self.kind = nn.Linear(E, len(WORDS)), nn.Linear(E, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) to (B, T, E)."""
        mask = torch.nn.Transformer.generate_square_subsequent_mask(T) if self.is_causal else None
        return self.layers(self.places(self.words(tokens)), mask=mask, is_causal=self.is_causal)

    def text_loss(self, tokens: Tensor) -> Tensor:
        """The loss that needs no labels."""
        if self.is_causal:  # the guess at place t is for the word at t + 1
            return F.cross_entropy(
                self.next_word(self(tokens))[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
            )
        hidden = torch.rand(tokens.shape) < 0.25
        logits = self.next_word(self(tokens.masked_fill(hidden, MASK)))
        return F.cross_entropy(logits[hidden], tokens[hidden])

    def kinds(self, tokens: Tensor) -> Tensor:
        """Scores of the two classes, from the place of the name."""
        return self.kind(self(tokens)[:, NAME])


def pretrain(model: LanguageModel, steps: int) -> list[float]:
    """Learn from text alone; the losses."""
    chance, losses = random.Random(0), []
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        loss = model.text_loss(batch(64, chance))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def finetune(model: LanguageModel, steps: int = 40) -> float:
    """Learn from eight labels, four names; the accuracy on sentences about the other sixteen names."""
    chance = random.Random(1)
    tokens, kinds = labelled(8, slice(0, 2), chance)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        loss = F.cross_entropy(model.kinds(tokens), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tokens, kinds = labelled(400, slice(2, None), chance)
    with torch.no_grad():
        return (model.kinds(tokens).argmax(-1) == kinds).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    print("model    text loss         accuracy after 8 labels, on new names")
    for name, is_causal in (("masked", False), ("causal", True)):
        torch.manual_seed(0)
        plain = finetune(LanguageModel(is_causal=is_causal))
        torch.manual_seed(0)
        model = LanguageModel(is_causal=is_causal)
        losses = pretrain(model, steps)
        pretrained = finetune(model)
        text = f"{losses[0]:.2f} to {losses[-1]:.2f}"
        print(f"{name}   {text}      {plain:.2f} without pretraining, {pretrained:.2f} with it")


if __name__ == "__main__":
    main()
