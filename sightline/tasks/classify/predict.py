"""A trained classifier: which class an image is of, and what was looked at to tell."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sightline.data.augment import as_floats
from sightline.data.class_set import ClassSet, fit_image
from sightline.data.images import open_image
from sightline.data.shard_classes import ShardPixels
from sightline.evaluate.classes import confusion, score, signature
from sightline.evaluate.scores import Scores
from sightline.messages import logger
from sightline.models.run_folder import CONFIG
from sightline.models.vit import VisionTransformer
from sightline.settings import check, from_json, setting
from sightline.shapes import Shaped
from sightline.show.vit import confusion_matrix, distances, received_by_layer
from sightline.tasks.attention import Attention, Grid
from sightline.tasks.classify.attention import INKED, ink_scores, patch_attention, patch_distances
from sightline.tasks.classify.data import DIGITS, ClassifyData, class_rows
from sightline.tasks.prediction import Alternative, Example, Prediction
from sightline.tasks.predictor import Predictor
from sightline.tasks.task import Figures

__all__ = [
    "Classifier",
    "ClassifyOptions",
    "look_figures",
    "look_json",
    "open_classifier",
    "prediction_lines",
    "predictions_json",
]

_INK = f"rollout mass on patches of at least {INKED:g} of full ink; chance is their share of the area"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifyOptions:
    """Options of a prediction."""

    top: int = setting(1, "Guesses for each image, best first.", at_least=1)

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Classifier(Predictor):
    """A Vision Transformer with the names of its classes."""

    model: VisionTransformer
    data: ClassifyData

    def batch(self, examples: Sequence[Example]) -> Tensor:
        """Some images as the model takes them."""
        return as_floats(super().batch(examples))

    def read(self, inputs: Sequence[Any]) -> list[Example]:
        """Images from files or their pixels, of any size and colours, as the model sees them."""
        size, channels = self.model.config.image_size, self.model.config.channels
        return [
            Example(input=given, value=fit_image(open_image(given, size), size, channels)) for given in inputs
        ]

    def predict(self, examples: Sequence[Example], options: Any, *, attention: bool) -> list[Prediction]:
        """Classify a batch of images."""
        images = torch.stack([example.value for example in examples])
        logits = self.model.predict(images, views=self.data.views).cpu()
        top = getattr(options, "top", len(self.data.names))
        best = logits.softmax(-1).topk(min(top, len(self.data.names)), dim=-1)
        looked = patch_attention(self.model, images) if attention else None
        predictions = []
        for i, example in enumerate(examples):
            guesses = tuple(
                Alternative(self.data.names[c], p)
                for c, p in zip(best.indices[i].tolist(), best.values[i].tolist(), strict=True)
            )
            predictions.append(
                Prediction(
                    input=example.input,
                    text=guesses[0].text,
                    score=guesses[0].score,
                    alternatives=guesses,
                    attention=None
                    if looked is None
                    else Attention(
                        weights=looked.heads[i][:, :, None].cpu(),
                        queries=(guesses[0].text,),
                        keys=Grid(rows=looked.grid[0], columns=looked.grid[1], image=example.value),
                        summary=looked.rollout[i][None].cpu(),
                        summary_label=f"rollout through {len(looked.layers)} layers",
                    ),
                )
            )
        return predictions

    def layers(self, example: Example, prediction: Prediction) -> Mapping[str, Attention]:  # noqa: ARG002
        """Every layer's weights over all tokens; the class token is called ``class``."""
        looked = patch_attention(self.model, example.value[None])
        rows, columns = looked.grid
        tokens = ("class",) * looked.n_extra + Grid(rows=rows, columns=columns, image=example.value).names()
        return {
            name: Attention(weights=weights.cpu(), queries=tokens, keys=tokens)
            for name, weights in looked.layers.items()
        }

    def row_names(self) -> Mapping[str, Sequence[str]]:
        """The classes."""
        return class_rows(self.data.names)

    def examples(self, dataset: ClassSet, split: str, limit: int | None) -> Iterator[Example]:
        """The images of a split with their classes, which must be the model's, in any order."""
        images, labels = _with_classes_of(dataset, self.data, split)
        _warn_of_change(dataset, self.data)
        for i in range(len(labels))[:limit]:
            name, image = self.data.names[labels[i]], images[i]
            if isinstance(images, ShardPixels) and i in images.broken:  # it was named
                continue
            yield Example(
                input=f"{split} {i}", value=image, references=(name,), truth=(int(labels[i]), image)
            )

    def score(
        self,
        dataset: ClassSet,
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
        options: Any,  # noqa: ARG002
    ) -> Scores:
        """Accuracy, top-5 and calibration; on the digits, also whether the rollout lies on the stroke."""
        labels = torch.tensor([example.truth[0] for example in examples])
        column = {name: i for i, name in enumerate(self.data.names)}
        log_p = torch.full((len(examples), len(column)), -torch.inf)
        for i, p in enumerate(predictions):
            for guess in p.alternatives:
                log_p[i, column[guess.text]] = torch.tensor(guess.score).log()
        scores = score(log_p, labels)
        total = {name: scores[name] for name in ("accuracy", "top5", "ece")}
        signatures = {name: signature(name, n=len(labels), views=self.data.views) for name in total}
        if dataset.source == DIGITS:
            total |= ink_scores(self.model, torch.stack([example.truth[1] for example in examples]))
            signatures |= dict.fromkeys(("ink", "ink_chance", "ink_ratio"), _INK)
        counts = confusion(log_p, labels)
        return Scores(
            total=total,
            each={"probability": log_p.gather(1, labels[:, None])[:, 0].exp().tolist()},
            signatures=signatures,
            tables={"confusion.csv": _table(counts, self.data.names)},
            figures={
                "Confusion": (
                    lambda: confusion_matrix(counts, self.data.names),
                    "What each class, down, was taken for, across.",
                )
            },
        )


def open_classifier(
    folder: Path, config: Mapping[str, Any], device: torch.device, *, force: bool = False
) -> Classifier:
    """Load the classifier of a run folder.

    Raises:
        ValueError: If a file in it is missing or damaged.
    """
    model = VisionTransformer.load(folder, device, force=force)
    data = from_json(ClassifyData, config.get("data", {}), where=str(folder / CONFIG))
    if len(data.names) != model.config.n_classes:
        raise ValueError(
            f"the config in {str(folder)!r} names {len(data.names)} classes and its model has "
            f"{model.config.n_classes}; the two belong to different runs"
        )
    return Classifier(model, data)


def prediction_lines(prediction: Prediction) -> list[str]:
    """``path: class probability, class probability``."""
    guesses = ", ".join(f"{name} {share:.3f}" for name, share in prediction.alternatives)
    return [f"{prediction.input}: {guesses}"]


def predictions_json(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """What ``classify --json`` prints."""
    rows = [{"image": str(p.input), "class": p.text, "guesses": dict(p.alternatives)} for p in predictions]
    return {"classes": rows}


def look_json(prediction: Prediction, layers: Mapping[str, Attention]) -> dict[str, Any]:
    """What ``look --json`` prints of a classifier."""
    attention = prediction.attention
    assert attention is not None and isinstance(attention.keys, Grid)  # noqa: S101, PT018 - a look asks for it
    grid = (attention.keys.rows, attention.keys.columns)
    received, distance = _by_layer(attention.keys, layers)
    return {
        "image": str(prediction.input),
        "class": prediction.text,
        "guesses": dict(prediction.alternatives),
        "grid": list(grid),
        "rollout": attention.summary[0].tolist(),
        "heads": attention.weights[:, :, 0].tolist(),  # layers x heads x patches
        "received": [row.tolist() for row in received],  # layers x patches
        "distance": [row.tolist() for row in distance],  # layers x heads
    }


def look_figures(prediction: Prediction, layers: Mapping[str, Attention]) -> Figures:
    """What every patch received, layer by layer, and how far heads look."""
    assert prediction.attention is not None  # noqa: S101 - a look asks for it
    keys = prediction.attention.keys
    assert isinstance(keys, Grid)  # noqa: S101 - a class looks at an image
    received, distance = _by_layer(keys, layers)
    if not received:  # one layer or head was chosen
        return {}
    shares = received_by_layer(keys.image, torch.stack(received), (keys.rows, keys.columns))
    return {
        "Received": (shares, "The share of all weight that each patch received."),
        "Distance": (distances(torch.stack(distance)), "Each dot is a head: how far it looks from a patch."),
    }


def _by_layer(grid: Grid, layers: Mapping[str, Attention]) -> tuple[list[Tensor], list[Tensor]]:
    """For each layer over all tokens, the share that each patch received, and how far each head looks."""
    n, sides = len(grid), (grid.rows, grid.columns)
    full = [a.weights[0] for a in layers.values() if len(a.keys) >= n and a.weights.size(2) > 1]  # (H, T, T)
    received = [w[..., -n:].sum((0, 1)) for w in full]
    pixels = grid.image.size(1) / grid.rows
    distance = [patch_distances(w[:, -n:, -n:], sides) * pixels for w in full]
    return [row / row.sum() for row in received], distance


def _with_classes_of(
    dataset: ClassSet, data: ClassifyData, split: str
) -> tuple[Shaped[Tensor, "N C h w"], Shaped[Tensor, " N"]]:
    """Images and labels of a split, with the classes in the order of the run's.

    Raises:
        ValueError: If the classes are others.
    """
    strange = sorted(set(dataset.names) ^ set(data.names))
    if strange:
        raise ValueError(
            f"the classes of {dataset.source!r} must be those of the run, {len(data.names)} of them, got "
            f"{len(dataset.names)}; {strange[0]!r} is in one of the two only"
        )
    part = dataset.split(split)
    place = torch.tensor([data.names.index(name) for name in dataset.names])
    return part.images, place[part.labels]


def _warn_of_change(dataset: ClassSet, data: ClassifyData) -> None:
    """Say that the run's own data has other images now than when it was trained."""
    if dataset.source == data.source and data.counts and list(data.counts) != dataset.counts:
        before, now = (", ".join(map(str, counts)) for counts in (data.counts, dataset.counts))
        logger.warning(
            "the data has changed: train, val and test had %s images, now %s; where a seed splits them, some "
            "that were learned from may be tested on",
            before,
            now,
        )


def _table(counts: Shaped[Tensor, "V V"], names: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["is, was taken for", *names])
    writer.writerows([name, *row] for name, row in zip(names, counts.tolist(), strict=True))
    return text.getvalue()
