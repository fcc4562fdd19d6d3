"""``sightline train``: from data to a run folder, one command a kind of model."""

import dataclasses
import importlib.util
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from sightline.cli.fields import Given, Group, settled, with_fields
from sightline.data.augment import Augment
from sightline.models.captioner import CaptionerConfig
from sightline.models.run_folder import CONFIG, read_config
from sightline.shapes import did_you_mean
from sightline.train.caption_data import CaptionData
from sightline.train.caption_run import train_captioner
from sightline.train.captioning import Score
from sightline.train.config import TrainConfig
from sightline.train.presets import Preset, preset, presets
from sightline.train.run import check_free
from sightline.train.self_critical import SelfCriticalConfig

app = typer.Typer(help="Train a model and leave a run folder.", no_args_is_help=True)

TRAINING = Group(part="train", kind=TrainConfig, title="Training")
SELF_CRITICAL = Group(
    part="self_critical", kind=SelfCriticalConfig, title="Self-critical stage", prefix="sc_"
)
CAPTION = [
    Group(part="model", kind=CaptionerConfig, title="Model", without=frozenset({"vocab_size", "decoder"})),
    Group(part="data", kind=CaptionData, title="Data", without=frozenset({"source", "augment"})),
    Group(
        part="augment",
        kind=Augment,
        title="Augmentation of pictures",
        without=frozenset({"mixup", "cutmix", "mix"}),
    ),
    TRAINING,
    SELF_CRITICAL,
]

# What every kind of training takes besides its fields.
Data = Annotated[str | None, typer.Option(help="A folder, a zip, or the name of an embedded set.")]
Out = Annotated[Path, typer.Option(help="The run folder to make.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, to the same end.")]


def preset_option(kind: str) -> Any:
    """The option that names a preset, with the names there are."""
    names = ", ".join(name for name in presets(kind) if not name.endswith("-recurrent"))
    return typer.Option("--preset", help=f"Named settings to start from: {names}.", show_default="default")


@app.callback()
def train() -> None:
    """Train a model and leave a run folder."""


@app.command()
@with_fields(CAPTION, preset("caption", None))
def caption(
    given: Given,
    out: Out,
    data: Data = None,
    preset_name: Annotated[str | None, preset_option("caption")] = None,
    model: Annotated[str | None, typer.Option(help="The decoder: transformer or recurrent.")] = None,
    resume: Resume = False,
    self_critical: Annotated[
        bool, typer.Option("--self-critical", help="Train a second stage by the score of whole captions.")
    ] = False,
) -> None:
    """Train a captioner on pictures with captions, or on the embedded set, scenes."""
    begin(out, resume=resume)
    base = saved_or_preset("caption", out, preset_name, resume=resume, typed=preset_name)
    for part, name, value in (("data", "source", data), ("model", "decoder", model)):
        if value is not None:
            given[part][name] = value
    if "source" not in {**base.get("data", {}), **given["data"]}:
        raise ValueError("a training needs data; add --data with a folder, a zip or 'scenes'")
    has_second = self_critical or SELF_CRITICAL.part in base
    if not has_second:
        _check_asked(given)
    settings = settled(CAPTION, base, given)
    second = settings[SELF_CRITICAL.part] if has_second else None
    done = train_captioner(
        dataclasses.replace(settings["data"], augment=settings["augment"]),
        settings["model"],
        settings["train"],
        out,
        score=_score({settings["train"].metric, *([] if second is None else [second.metric])}),
        resume=resume,
        self_critical=second,
    )
    say_done(done)


def _check_asked(given: Given) -> None:
    """Refuse settings of a stage that there will not be."""
    for name in given[SELF_CRITICAL.part]:
        flag = f"--{SELF_CRITICAL.prefix}{name}".replace("_", "-")
        raise ValueError(
            f"{flag} is for the self-critical stage, which was not asked for; add --self-critical"
        )


def begin(out: Path, *, resume: bool) -> None:
    """Refuse a folder in use before any work is done; with several processes, in the first alone.

    Where a run was to go on and there is none, that is told: a new one begins.
    """
    for place in (out, *out.parents):
        if os.path.lexists(place) and not place.is_dir():
            raise ValueError(f"--out must be a folder, {str(place)!r} is none; choose another --out")
    if not _is_first():
        return
    check_free(out, resume=resume)
    if resume and not (out / CONFIG).exists():
        typer.echo(f"there is nothing to resume in {str(out)!r}: a new run begins", err=True)


def saved_or_preset(
    kind: str, out: Path, name: str | None, *, resume: bool, typed: str | None = None
) -> Preset:
    """The settings to start from: those that the run in the folder was started with, or a preset's.

    If a preset was ``typed`` and is not read, because a run goes on that differs from it, that is told.
    """
    if not (resume and (out / CONFIG).exists()):
        return preset(kind, name)
    saved = read_config(out)
    if saved["kind"] != kind:
        raise ValueError(
            f"{str(out)!r} holds a run of kind {saved['kind']!r}; go on with it by "
            f"`sightline train {saved['kind']} --resume`"
        )
    parts = {part: dict(saved.get(part, {})) for part in ("model", "data", "train")}
    parts["augment"] = parts["data"].pop("augment", {})
    stages = parts["train"].pop("stages", {})
    if "self-critical" in stages:
        parts["self_critical"] = stages["self-critical"]
    if typed is not None and _is_first():
        _say_unread(typed, preset(kind, typed), parts)
    return parts


def _say_unread(name: str, wished: Preset, parts: Preset) -> None:
    """Say that a preset is not read where a run goes on, if it would change anything."""
    for part, wishes in wished.items():
        for field, wish in wishes.items():
            have = parts.get(part, {}).get(field, wish)
            if have != wish:
                typer.echo(
                    f"the run goes on as it was started: {field} stays {have!r}, --preset {name} "
                    f"would make it {wish!r}",
                    err=True,
                )
                return


def say_done(out: Path) -> None:
    """Print the folder, from one process."""
    if _is_first():
        typer.echo(out)


def _is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _score(metrics: set[str]) -> Score | None:
    """The scorer of captions, if it knows these metrics; without its package only the loss can choose."""
    further = sorted(metrics - {"loss", "perplexity"})
    if importlib.util.find_spec("pycocoevalcap") is None:
        if further:
            raise ValueError(
                f"the metric {further[0]!r} needs pycocoevalcap, which is not installed; "
                "pip install 'sightline[train]', or choose --metric loss"
            )
        return None
    from sightline.evaluate.captions import score  # noqa: PLC0415

    known = ["loss", "perplexity", *score(["a"], [["a"]])]
    for metric in further:
        if metric not in known:
            raise ValueError(f"unknown metric {metric!r}, {did_you_mean(metric, known)}")
    return score


def gathered() -> typer.Typer:
    """All commands; those of the other kinds have files of their own, which import this one."""
    from sightline.cli import train_classify, train_translate  # noqa: PLC0415

    train_translate.add(app)
    train_classify.add(app)
    return app
