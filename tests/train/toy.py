"""A task of a few milliseconds a step: a small network learns a fixed map, with noise from every source."""

from dataclasses import dataclass

import torch
from torch import nn

from sightline.train import Loss, Objective, TrainConfig

QUICK = TrainConfig(device="cpu", epochs=2, lr=1e-2, tensorboard=False, threads=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToyConfig:
    width: int = 7


class Toy(nn.Module):
    def __init__(self, config: ToyConfig | None = None, dropout: float = 0.1):
        super().__init__()
        self.config = config = config or ToyConfig()
        self.first = nn.Linear(5, config.width)
        self.norm = nn.BatchNorm1d(config.width) if dropout else nn.LayerNorm(config.width)
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(config.width, 3, bias=False)

    def forward(self, x):
        return self.last(self.dropout(torch.relu(self.norm(self.first(x)))))


def chance(*numbers):
    """A generator that some numbers seed."""
    return torch.Generator().manual_seed(hash(numbers) % (1 << 40))


class ToyObjective(Objective):
    kind = "toy"

    def __init__(self, n=53, batch_size=11, seed=0, noise=0.1):
        generator = torch.Generator().manual_seed(3)
        self.x = torch.randn(n + 17, 5, generator=generator)
        self.y = (self.x @ torch.randn(5, 3, generator=generator)).argmax(-1)
        self.n, self.batch_size, self.seed, self.noise = n, batch_size, seed, noise

    def plan(self, epoch):
        order = torch.randperm(self.n, generator=chance(self.seed, epoch)).tolist()
        return [order[i : i + self.batch_size] for i in range(0, self.n, self.batch_size)]

    def load(self, indices, epoch):
        noise = [torch.randn(5, generator=chance(self.seed, epoch, i)) for i in indices]
        return {"x": self.x[indices] + self.noise * torch.stack(noise), "y": self.y[indices]}

    def loss(self, model, batch):
        logits = model(batch["x"])
        weights = torch.tensor([1.0, 2.0, 3.0])  # so that the terms of a batch are not its examples
        total = nn.functional.cross_entropy(logits, batch["y"], weight=weights, reduction="sum")
        hits = (logits.argmax(-1) == batch["y"]).sum()
        return Loss(total, weights[batch["y"]].sum(), {"hits": hits})

    def evaluate(self, model):
        logits = model(self.x[self.n :])
        loss = nn.functional.cross_entropy(logits, self.y[self.n :])
        return {
            "loss": loss.item(),
            "accuracy": (logits.argmax(-1) == self.y[self.n :]).double().mean().item(),
        }
