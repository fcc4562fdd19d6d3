"""``sightline train classify``: a Vision Transformer from images with a class each."""

from typing import Annotated, Any

import torch
import typer

from sightline.cli.classify_run import tell
from sightline.cli.fields import Given, Group, settled, with_fields
from sightline.cli.train import TRAINING, Out, Resume, begin, preset_option, saved_or_preset, say_done
from sightline.data.augment import Augment
from sightline.data.class_set import ClassSet
from sightline.evaluate.classes import score
from sightline.models.vit import SIZES, VisionTransformer, VisionTransformerConfig
from sightline.settings import from_json
from sightline.shapes import did_you_mean
from sightline.train.classifying import ClassData, ClassTask, read_source
from sightline.train.loop import fit
from sightline.train.presets import preset

CLASSIFY = [
    Group(part="model", kind=VisionTransformerConfig, title="Model", without=frozenset({"n_classes"})),
    Group(part="data", kind=ClassData, title="Data", without=frozenset({"source", "names", "counts"})),
    Group(part="augment", kind=Augment, title="Augmentation"),
    TRAINING,
]
_EMBEDDED = ("digits",)
Data = Annotated[str | None, typer.Option(help="A folder with one subfolder a class, an .npz, or digits.")]


def add(app: typer.Typer) -> None:
    """Make it a command of ``sightline train``."""
    app.command()(classify)


@with_fields(CLASSIFY, preset("classify", None))
def classify(
    given: Given,
    out: Out,
    data: Data = None,
    preset_name: Annotated[str | None, preset_option("classify")] = None,
    size: Annotated[str | None, typer.Option(help=f"Named widths and depth: {', '.join(SIZES)}.")] = None,
    resume: Resume = False,
) -> None:
    """Train a Vision Transformer on a folder with one subfolder a class, an .npz, or the embedded digits."""
    begin(out, resume=resume)
    if preset_name is None and data in _EMBEDDED:
        preset_name = data
    base = saved_or_preset("classify", out, preset_name, resume=resume, typed=preset_name)
    if data is not None:
        given["data"]["source"] = data
    if "source" not in {**base.get("data", {}), **given["data"]}:
        raise ValueError("a training needs data; add --data with a folder, an .npz or 'digits'")
    if size is not None and size not in SIZES:
        raise ValueError(f"unknown size {size!r}, {did_you_mean(size, SIZES)}")
    sized: dict[str, Any] = {} if size is None else {"model": SIZES[size]._asdict()}
    images = _read({**base.get("data", {}), **given["data"]}, {**base.get("model", {}), **given["model"]})
    channels, side = images.split("train").images.shape[1:3]
    found = {"model": {"n_classes": len(images.names), "channels": channels, "image_size": side}}
    settings = settled(CLASSIFY, base, sized, given, found)
    task = ClassTask(images, settings["train"], settings["data"], settings["augment"], score=score)
    torch.manual_seed(settings["train"].seed)
    say_done(fit(VisionTransformer(settings["model"]), task, settings["train"], out, resume=resume))


def _read(data: dict[str, Any], model: dict[str, Any]) -> ClassSet:
    """The images, as the model will take them; what could not be read is told."""
    images = read_source(
        from_json(ClassData, data, where="data"),
        image_size=model.get("image_size"),
        channels=model.get("channels"),
    )
    tell(images)
    return images
