"""From settings to a classifier that can be trained."""

import dataclasses
from pathlib import Path

import torch

from sightline.evaluate.classes import score
from sightline.models.vit import VisionTransformer
from sightline.tasks.classify.data import class_rows, open_classes
from sightline.tasks.classify.objective import ClassifyObjective
from sightline.tasks.task import Prepared, Settings

__all__ = ["prepare_classifier"]


def prepare_classifier(settings: Settings, begun: Path | None) -> Prepared:  # noqa: ARG001
    """Read the images, as the model will take them, and build the model for their classes."""
    chosen = {name: settings.chosen("model", name) for name in ("image_size", "channels")}
    images = open_classes(settings["data"], chosen)
    channels, side = images.split("train").images.shape[1:3]
    config = dataclasses.replace(
        settings["model"], n_classes=len(images.names), channels=channels, image_size=side
    )
    torch.manual_seed(settings["train"].seed)
    return Prepared(
        model=VisionTransformer.build(config),
        objective=ClassifyObjective(images, settings["train"], settings["data"], score=score),
        train=settings["train"],
        sample=images.split("test").images[0],
        row_names=class_rows(images.names),
    )
