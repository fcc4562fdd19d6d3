"""``sightline train translate``: a translator, Transformer or recurrent, from sentence pairs."""

import dataclasses
from typing import Annotated, Any

import typer

from sightline.cli.fields import Given, Group, settled, with_fields
from sightline.cli.train import TRAINING, Data, Out, Resume, begin, preset_option, saved_or_preset, say_done
from sightline.data.dates import DATES
from sightline.evaluate.translation import score
from sightline.models.rnn import RecurrentConfig
from sightline.models.translator import TranslatorConfig
from sightline.shapes import did_you_mean
from sightline.train.presets import Preset, presets
from sightline.train.translate_data import TranslateData
from sightline.train.translate_run import train_translator

MODELS = ("transformer", "recurrent")
_FOUND = frozenset({"architecture", "source_vocab_size", "vocab_size", "shared"})
_BOTH = frozenset(field.name for field in dataclasses.fields(TranslatorConfig))
_DATA = Group(part="data", kind=TranslateData, title="Data", without=frozenset({"place"}))
_TRANSFORMER = Group(part="model", kind=TranslatorConfig, title="Model", without=_FOUND)
_RECURRENT = Group(part="recurrent", kind=RecurrentConfig, title="Recurrent model", without=_FOUND | _BOTH)


def _start() -> Preset:
    """What is taken where no preset is named, the recurrent model's own settings included."""
    found = presets("translate")
    return {**found["default"], "recurrent": found["default-recurrent"]["model"]}


def add(app: typer.Typer) -> None:
    """Make it a command of ``sightline train``."""
    app.command()(translate)


@with_fields([_TRANSFORMER, _RECURRENT, _DATA, TRAINING], _start())
def translate(
    given: Given,
    out: Out,
    data: Data = None,
    preset_name: Annotated[str | None, preset_option("translate")] = None,
    model: Annotated[str | None, typer.Option(help="transformer or recurrent.")] = None,
    resume: Resume = False,
) -> None:
    """Train a translator on sentence pairs, or on the embedded set, dates."""
    if model is not None and model not in MODELS:
        raise ValueError(f"unknown model {model!r}, {did_you_mean(model, MODELS)}")
    begin(out, resume=resume)
    name = DATES if preset_name is None and data == DATES else preset_name
    wished = _for_model(name, model, given)
    base = saved_or_preset("translate", out, wished, resume=resume, typed=preset_name and wished)
    if data is not None:
        given["data"]["place"] = data
    if "place" not in {**base.get("data", {}), **given["data"]}:
        raise ValueError("a training needs data; add --data with a folder, a zip or 'dates'")
    settings = _settled(base, given, model)
    metric, known = settings["train"].metric, ["loss", "perplexity", *score(["a"], ["a"])]
    if metric not in known:
        raise ValueError(f"unknown metric {metric!r}, {did_you_mean(metric, known)}")
    say_done(
        train_translator(
            settings["data"], settings["model"], settings["train"], out, score=score, resume=resume
        )
    )


def _for_model(name: str | None, model: str | None, given: Given) -> str | None:
    """The preset of this name for the recurrent model, where that is what is asked for."""
    recurrent = model == "recurrent" or (model is None and bool(given["recurrent"]))
    other = f"{'default' if name is None else name}-recurrent"
    return other if recurrent and other in presets("translate") else name


def _settled(base: Preset, given: Given, model: str | None) -> dict[str, Any]:
    """Settings by part: the defaults, then the preset's or the run's, then what was given."""
    wished = {**given["model"], **given.pop("recurrent")}
    named = base.get("model", {}).get("architecture")
    recurrent = (model or named) == "recurrent"
    kind: type[Any] = RecurrentConfig if recurrent else TranslatorConfig
    known = {field.name for field in dataclasses.fields(kind)}
    for name in wished:
        if name not in known:
            raise ValueError(
                f"--{name.replace('_', '-')} is no setting of the {MODELS[recurrent]} model, "
                f"{did_you_mean(name, known - _FOUND)}"
            )
    kept = {key: value for key, value in base.get("model", {}).items() if key in known}
    start = {**base, "model": kept | {"architecture": MODELS[recurrent]} | _unsized(kept)}
    groups = [dataclasses.replace(_TRANSFORMER, kind=kind), _DATA, TRAINING]
    known_parts = {part: fields for part, fields in start.items() if part in {"model", "data", "train"}}
    return settled(groups, known_parts, {**given, "model": wished})


def _unsized(model: dict[str, Any]) -> dict[str, Any]:
    """What the tokenizers will tell, left open until then."""
    return {name: False if name == "shared" else 0 for name in _FOUND - {"architecture"} if name in model}
