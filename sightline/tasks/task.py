"""A task: all that runs and commands need to know of one kind of thing to learn.

``register(Task(kind="sort", ...))`` makes ``sightline train sort``, ``sort``, ``evaluate``, ``look`` and
``open_run`` know it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor, nn

from sightline.tasks.attention import Attention
from sightline.tasks.prediction import Prediction
from sightline.tasks.predictor import Predictor
from sightline.train.config import TrainConfig
from sightline.train.objective import Objective, Stage

__all__ = ["TRAINING", "NoOptions", "Part", "Predictor", "Prepared", "Preset", "Settings", "Task"]

Figures = Mapping[str, tuple[Figure, str]]  # heading -> figure and caption
Preset = Mapping[str, Mapping[str, Any]]  # part -> field -> value


class Settings(dict[str, Any]):
    """The settings of a training: for each part its config.

    Attributes:
        kind: Of the task.
        explicit: For each part, the fields that a preset, a saved run or the user set; the rest are defaults.

    Example:
        >>> Settings("sort", {"data": None}, {}).kind
        'sort'
    """

    def __init__(self, kind: str, parts: Mapping[str, Any], explicit: Mapping[str, frozenset[str]]) -> None:
        super().__init__(parts)
        self.kind, self.explicit = kind, explicit

    def chosen(self, part: str, field: str) -> Any:
        """The value of a field where somebody chose it; None where it is only the default."""
        return getattr(self[part], field) if field in self.explicit.get(part, ()) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Settings of a task that become flags of ``sightline train``.

    Attributes:
        name: What presets call them.
        config: Their dataclass.
        title: The heading over them in the help. Default: the name.
        inside: The part, and the field of it, that these settings are set in: ("data", "augment").
        no_flags: Fields that are no flags: found out from the data, or with an option of their own.
        prefix: Stands before the names of the flags.
        switch: Of an optional part, the flag that asks for it; None: the part is always there.
        switch_help: The help of that flag.
        stage: Of settings of a further stage, the stage's name in config.json.

    Example:
        >>> Part(name="train", config=sl.train.TrainConfig).title
        'Train'
    """

    name: str
    config: type[Any]
    title: str = ""
    inside: tuple[str, ...] = ()
    no_flags: frozenset[str] = frozenset()
    prefix: str = ""
    switch: str | None = None
    switch_help: str = ""
    stage: str | None = None

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.name.replace("_", " ").capitalize())


TRAINING = Part(name="train", config=TrainConfig, title="Training")


@dataclass(frozen=True, kw_only=True, slots=True)
class NoOptions:
    """A command of this task takes no further options."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a training needs.

    Attributes:
        model: To be trained.
        objective: What it learns from which batches.
        train: How. Default: as the settings say.
        stages: Further stages, each from the best weights of the one before.
        notes: What a user should know before the training starts.
        finish: Called with the run folder when the training has ended.
        test_split: The split that is there to be evaluated on.
        sample: An input to try the model on: a path, a text, or an image, which is saved with the run.
        row_names: As :meth:`Predictor.row_names` of the run to be.

    Example:
        >>> Prepared(model=nn.Linear(3, 5), objective=None).test_split
        'test'
    """

    model: nn.Module
    objective: Objective
    train: TrainConfig | None = None
    stages: Sequence[Stage] = ()
    notes: Sequence[str] = ()
    finish: Callable[[Path], None] | None = None
    test_split: str = "test"
    sample: str | Tensor = ""
    row_names: Mapping[str, Sequence[str]] = field(default_factory=dict)


def _plain_predictions(predictions: Sequence[Prediction]) -> dict[str, Any]:
    rows = [
        {
            "input": str(p.input),
            "prediction": p.text,
            "score": p.score,
            "alternatives": [{"prediction": a.text, "score": a.score} for a in p.alternatives],
        }
        for p in predictions
    ]
    return {"predictions": rows}


def _plain_look(prediction: Prediction, layers: Mapping[str, Attention]) -> dict[str, Any]:
    return {
        "input": str(prediction.input),
        "prediction": prediction.text,
        "layers": {name: attention.weights[0].tolist() for name, attention in layers.items()},
    }


def _no_figures(prediction: Prediction, layers: Mapping[str, Attention]) -> Figures:  # noqa: ARG001
    return {}


def _plain_lines(prediction: Prediction) -> list[str]:
    return [prediction.text]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One kind of thing to learn.

    Attributes:
        kind: Its name: of the subcommand, and in a run's config.json.
        summary: What it does, in a line.
        train_help, predict_help: What the two commands of the task do, in a sentence. Default: the summary.
        inputs: What a model of this kind takes: "IMAGE", "TEXT"; stands in the help.
        inputs_help: The same in a few words.
        input_is_file: Whether an input is a file's path, or a text.
        unit: What examples of this task are called, in the plural: "images", "pairs".
        parts: Settings that are flags of ``sightline train``.
        presets: Named settings; ``default`` is taken where none is named.
        embedded: Embedded data sets, each with the preset made for it.
        metrics: Names that ``--metric`` takes.
        scores: Names of the scores of an evaluation.
        extra_scores: Further ones, by when an evaluation has them: {"on scenes": ("grounding",)}.
        data_help: What ``--data`` takes.
        reads_files: Whether data may lie in files, besides the embedded sets.
        source_field: The field of the ``data`` settings that says where the data lies.
        dataset: Opens the data that the ``data`` settings name, for a model with some settings.
        prepare: Model and objective for some settings; the folder is that of a training that goes on.
        open: Loads the model of a run folder, whose config.json is given, with what belongs to it; with
            ``force=True`` where files that are not those that were written are to be opened all the same.
        predict_options: Dataclass of the options of a prediction; also flags.
        look_options: Options that a look predicts with, where none are given.
        evaluate_options: Dataclass of the options of an evaluation; also flags.
        architectures: Model configs by the name that ``--model`` takes; empty where there is one.
        architecture_field: The field of the model's config that holds that name.
        sizes: Named values of the model's settings, for ``--size``.
        overrides: Settings that stand for another one, each as "part.field": asking for the first turns off
            the second, where a preset has it; asking for both is refused.
        ranking: The metric of single predictions by which a page shows the best and the worst; None: none.
        lines: What is printed for a prediction.
        predictions_json: What ``--json`` prints for predictions.
        look_json: What ``look --json`` prints for one, with the attentions that were asked for.
        look_figures: Further figures of a look's page for the same, by heading, each with a caption.

    Example:
        >>> sl.tasks.task_of("translate").metrics[0]
        'loss'
    """

    kind: str
    summary: str
    parts: tuple[Part, ...]
    prepare: Callable[[Settings, Path | None], Prepared]
    open: Callable[..., Predictor]  # folder, config, device, force=False
    dataset: Callable[[Any, Mapping[str, Any]], Any]
    train_help: str = ""
    predict_help: str = ""
    inputs: str = "TEXT"
    inputs_help: str = "Texts; - reads standard input, one a line."
    input_is_file: bool = False
    presets: Mapping[str, Preset] = field(default_factory=dict)
    embedded: Mapping[str, str] = field(default_factory=dict)
    metrics: tuple[str, ...] = ("loss",)
    scores: tuple[str, ...] = ("exact_match",)
    extra_scores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unit: str = "examples"
    data_help: str = "A folder, a zip, or the name of an embedded set."
    reads_files: bool = True
    source_field: str = "source"
    predict_options: type[Any] = NoOptions
    look_options: Mapping[str, Any] = field(default_factory=dict)
    evaluate_options: type[Any] = NoOptions
    architectures: Mapping[str, type[Any]] = field(default_factory=dict)
    architecture_field: str = "architecture"
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)
    ranking: str | None = None
    lines: Callable[[Prediction], Sequence[str]] = _plain_lines
    predictions_json: Callable[[Sequence[Prediction]], Any] = _plain_predictions
    look_json: Callable[[Prediction, Mapping[str, Attention]], Any] = _plain_look
    look_figures: Callable[[Prediction, Mapping[str, Attention]], Figures] = _no_figures

    def __post_init__(self) -> None:
        for name in ("train_help", "predict_help"):
            if not getattr(self, name):
                object.__setattr__(self, name, self.summary)

    def no_flags(self, part: Part) -> frozenset[str]:
        """Fields of a part that are no flags: where the data lies is said by ``--data``."""
        return part.no_flags | {self.source_field} if part.name == "data" else part.no_flags

    @property
    def data_config(self) -> type[Any]:
        """The dataclass of the ``data`` settings."""
        return next(part.config for part in self.parts if part.name == "data")
