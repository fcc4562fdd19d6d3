"""A task of your own in one file: a Transformer that sorts numbers. See docs/do/task_of_your_own.md.

python examples/task_of_your_own.py train sort --out runs/sort
python examples/task_of_your_own.py evaluate runs/sort
python examples/task_of_your_own.py sort runs/sort "31 4 15 42 26 35 8"
python examples/task_of_your_own.py look runs/sort "31 4 15 42 26 35 8" --out look.html
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import sightline as sl
from sightline import tasks
from sightline.cli import main
from sightline.settings import as_json, setting
from sightline.tasks import Example, MemoryDataset, Part, Prediction, Prepared
from sightline.train import Loss


@dataclass(frozen=True, kw_only=True)
class SorterConfig:
    length: int = setting(7, "How many numbers are sorted.", at_least=2)
    largest: int = setting(49, "The largest number; the smallest is 0.", at_least=1)
    d_model: int = setting(64, "Width of the vectors, a multiple of n_heads.", at_least=1)
    n_heads: int = setting(4, "Heads of each layer.", at_least=1)
    n_layers: int = setting(2, "Layers.", at_least=1)


class Sorter(tasks.SaveableModel):
    """Reads numbers, writes the k-th smallest at position k."""

    kind, Config = "sort", SorterConfig

    def __init__(self, config: SorterConfig) -> None:
        super().__init__()
        self.config = config
        self.number = nn.Embedding(config.largest + 1, config.d_model)
        self.position = sl.positions.LearnedPositions(config.length, config.d_model)
        layer = sl.nn.TransformerEncoderLayer(config.d_model, config.n_heads, 256, batch_first=True)
        self.encoder = sl.nn.TransformerEncoder(layer, config.n_layers, enable_nested_tensor=False)
        self.output = nn.Linear(config.d_model, config.largest + 1)

    def forward(self, rows: Tensor) -> Tensor:  # (B, T) -> (B, T, V)
        return self.output(self.encoder(self.position(self.number(rows))))


@dataclass(frozen=True, kw_only=True)
class SortData:
    source: str = setting("numbers", "Where the data lies; these are drawn.")
    rows: int = setting(8000, "Rows of numbers to learn from.", at_least=1)


def draw_numbers(data: SortData, model: Mapping[str, Any]) -> MemoryDataset:
    random = torch.Generator().manual_seed(0)
    sizes = {"train": data.rows, "val": 200, "test": 200}
    high, length = model["largest"] + 1, model["length"]
    rows = {split: torch.randint(high, (n, length), generator=random) for split, n in sizes.items()}
    return MemoryDataset(source=data.source, examples=rows)


class SortObjective(tasks.DatasetObjective):
    def loss(self, model: nn.Module, batch: Tensor) -> Loss:
        logits, right = model(batch).transpose(1, 2), batch.sort().values  # (B, V, T), (B, T)
        total = nn.functional.cross_entropy(logits, right, reduction="sum")
        return Loss(total, torch.tensor(right.numel()), {"accuracy": (logits.argmax(1) == right).sum()})


def prepare(settings: tasks.Settings, _begun: Any) -> Prepared:
    dataset = draw_numbers(settings["data"], as_json(settings["model"]))
    model, sample = Sorter(settings["model"]), written(dataset.split("test")[0])
    return Prepared(model=model, objective=SortObjective(dataset, settings), sample=sample)


class SortPredictor(tasks.Predictor):
    model: Sorter

    def read(self, inputs: Sequence[str]) -> list[Example]:
        n, largest = self.model.config.length, self.model.config.largest
        for text in inputs:
            if len(text.split()) != n or not all(w.isdecimal() and int(w) <= largest for w in text.split()):
                raise ValueError(f"this model sorts {n} numbers from 0 to {largest}, got {text!r}")
        return [Example(input=text, value=torch.tensor([*map(int, text.split())])) for text in inputs]

    def examples(self, dataset: MemoryDataset, split: str, limit: int | None) -> Iterator[Example]:
        for row in dataset.split(split)[:limit]:
            yield Example(input=written(row), value=row, references=(written(row.sort().values),))

    def predict(self, examples: Sequence[Example], _options: Any, *, attention: bool) -> Iterator[Prediction]:
        best = self.model(self.batch(examples)).log_softmax(-1).max(-1)  # values and indices, each (B, T)
        seen = self.watch(examples) if attention else None
        for i, example in enumerate(examples):
            text, score = written(best.indices[i]), float(best.values[i].sum())
            looked = seen and tasks.Attention.of(seen, i, queries=text.split(), keys=example.input.split())
            yield Prediction(input=example.input, text=text, score=score, attention=looked)


def written(row: Tensor) -> str:
    return " ".join(map(str, row.tolist()))


SORT = tasks.Task(
    kind="sort",
    summary="Sort numbers.",
    parts=(Part(name="model", config=SorterConfig), Part(name="data", config=SortData), tasks.TRAINING),
    presets={"default": {"data": {"source": "numbers"}, "train": {"epochs": 12, "lr": 2e-3}}},
    embedded={"numbers": "default"},
    reads_files=False,
    metrics=("loss", "accuracy"),
    dataset=draw_numbers,
    prepare=prepare,
    open=lambda folder, _config, device, **how: SortPredictor(Sorter.load(folder, device, **how)),
)
tasks.register(SORT)

if __name__ == "__main__":
    main()
