"""Image captioning: an encoder and a decoder, a Transformer or the recurrent one of Show, Attend and Tell."""

from sightline.data.augment import Augment
from sightline.models.captioner import DECODERS, CaptionerConfig
from sightline.tasks.caption.data import SCENES, CaptionData, open_captions
from sightline.tasks.caption.predict import (
    CaptionEvaluateOptions,
    CaptionOptions,
    look_json,
    open_captioner,
    prediction_lines,
    predictions_json,
)
from sightline.tasks.caption.prepare import prepare_captioner
from sightline.tasks.caption.presets import PRESETS
from sightline.tasks.caption.self_critical import STAGE, SelfCriticalConfig
from sightline.tasks.task import TRAINING, Part, Task

__all__ = ["CAPTION"]

_SCORES = ("bleu1", "bleu2", "bleu3", "bleu4", "rouge_l", "cider")

CAPTION = Task(
    kind="caption",
    summary="Describe images in words.",
    train_help="Train a captioner on images with captions, or on the embedded set, scenes.",
    predict_help="Write a caption for each image, and draw what the model looked at for every word. "
    "Captions are searched for; with --temperature, --top-k, --top-p or --seed they are sampled.",
    inputs="IMAGE",
    inputs_help="Images.",
    input_is_file=True,
    dataset=open_captions,
    prepare=prepare_captioner,
    open=open_captioner,
    parts=(
        Part(
            name="model",
            config=CaptionerConfig,
            title="Model",
            no_flags=frozenset({"vocab_size", "decoder"}),
        ),
        Part(name="data", config=CaptionData, title="Data", no_flags=frozenset({"augment"})),
        Part(
            name="augment",
            config=Augment,
            title="Augmentation",
            inside=("data", "augment"),
            no_flags=frozenset({"mixup", "cutmix", "mix"}),  # an image with captions is not mixed
        ),
        TRAINING,
        Part(
            name="self_critical",
            config=SelfCriticalConfig,
            title="Self-critical stage",
            prefix="sc_",
            switch="self_critical",
            switch_help="Train a second stage by the score of whole captions.",
            stage=STAGE,
        ),
    ),
    presets=PRESETS,
    embedded={SCENES: "demo"},
    metrics=("loss", "perplexity", *_SCORES),
    scores=_SCORES,
    extra_scores={
        "on scenes": ("attribute_accuracy", "grounding", "grounding_chance"),
    },
    unit="images",
    ranking="cider",
    data_help="A folder, zip or shards of images with captions, or scenes.",
    predict_options=CaptionOptions,
    evaluate_options=CaptionEvaluateOptions,
    architectures=dict.fromkeys(DECODERS, CaptionerConfig),
    architecture_field="decoder",
    lines=prediction_lines,
    predictions_json=predictions_json,
    look_json=look_json,
)
