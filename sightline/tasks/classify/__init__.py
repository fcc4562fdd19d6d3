"""Image classification by a Vision Transformer."""

from sightline.data.augment import Augment
from sightline.models.vit import SIZES, VisionTransformerConfig
from sightline.tasks.classify.data import DIGITS, ClassifyData, open_classes
from sightline.tasks.classify.predict import (
    ClassifyOptions,
    look_figures,
    look_json,
    open_classifier,
    prediction_lines,
    predictions_json,
)
from sightline.tasks.classify.prepare import prepare_classifier
from sightline.tasks.classify.presets import PRESETS
from sightline.tasks.task import TRAINING, Part, Task

__all__ = ["CLASSIFY"]

CLASSIFY = Task(
    kind="classify",
    summary="Tell which class an image is of.",
    train_help="Train a Vision Transformer on images with a class each, or on the embedded digits.",
    predict_help="Tell the class of each image, and draw what the model looked at.",
    inputs="IMAGE",
    inputs_help="Images.",
    input_is_file=True,
    parts=(
        Part(name="model", config=VisionTransformerConfig, no_flags=frozenset({"n_classes"})),
        Part(name="data", config=ClassifyData, no_flags=frozenset({"names", "counts", "augment"})),
        Part(name="augment", config=Augment, title="Augmentation", inside=("data", "augment")),
        TRAINING,
    ),
    dataset=open_classes,
    prepare=prepare_classifier,
    open=open_classifier,
    presets=PRESETS,
    embedded={DIGITS: "digits"},
    metrics=("accuracy", "top5", "ece", "loss"),
    scores=("accuracy", "top5", "ece"),
    extra_scores={"on digits": ("ink", "ink_chance", "ink_ratio")},
    unit="images",
    ranking="probability",
    data_help="A folder or zip with one subfolder per class, an .npz, shards, or digits.",
    predict_options=ClassifyOptions,
    look_options={"top": 5},
    sizes={name: size._asdict() for name, size in SIZES.items()},
    lines=prediction_lines,
    predictions_json=predictions_json,
    look_json=look_json,
    look_figures=look_figures,
)
