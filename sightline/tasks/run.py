"""A trained model in its folder, ready to predict, to be evaluated and to be looked into.

``open_run("runs/demo").predict(["a.jpg"], beam=5)`` gives predictions, ``.evaluate(split="test")`` scores,
and ``.watch(["a.jpg"])`` every attention of the model.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sightline.look.recording import Recording
from sightline.messages import check_bool, check_integer, did_you_mean, format_value, shortened
from sightline.models.manifest import FORCE_REMEDY, MANIFEST
from sightline.models.run_folder import CONFIG, note_version, read_config
from sightline.settings import check, from_json, restore_settings
from sightline.shapes import check_device
from sightline.show.explorer.steps import Step
from sightline.tasks.attention import Attention
from sightline.tasks.configure import absolute, check_data, check_still_there
from sightline.tasks.prediction import Evaluation, Example, Prediction
from sightline.tasks.registry import kinds, task_of
from sightline.tasks.task import Predictor, Task
from sightline.train.processes import spread, world_size
from sightline.train.record import check_as_written

__all__ = ["Run", "choose_device", "is_run", "open_run"]

_BATCH = 64
_OnError = Callable[[Any, Exception], None]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A run folder, opened.

    Attributes:
        folder: Where it lies.
        task: What its model was trained for.
        config: Its config.json: ``kind``, ``version``, ``model``, ``data`` and ``train``.
        device: Where the model is.
        predictor: The model with what belongs to it.

    Example:
        >>> from tempfile import mkdtemp
        >>> sizes = {"patch": 4, "d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 4}
        >>> quick = {"steps": 1, "tensorboard": False, "shown": False}
        >>> run = sl.tasks.train("classify", data="digits", out=mkdtemp(), **quick, **sizes)
        >>> p = next(run.predict([torch.zeros(1, 8, 8, dtype=torch.uint8)], top=3))
        >>> run.kind, len(p.alternatives), p.attention.weights.shape
        ('classify', 3, torch.Size([1, 2, 1, 4]))
    """

    folder: Path
    task: Task
    config: Mapping[str, Any]
    device: torch.device
    predictor: Predictor

    @property
    def kind(self) -> str:
        """``caption``, ``translate``, ``classify``, or the name of a task of your own."""
        return self.task.kind

    @property
    def model(self) -> nn.Module:
        """The model, in eval."""
        return self.predictor.model

    def predict(
        self,
        inputs: Iterable[Any],
        *,
        attention: bool = True,
        batch_size: int = _BATCH,
        on_error: _OnError | None = None,
        **options: Any,
    ) -> Iterator[Prediction]:
        """Predict some inputs: images by their paths, or sentences. Lazily, in batches, in order.

        Args:
            inputs: What the model takes.
            attention: Whether predictions tell what the model looked at.
            batch_size: Inputs that go through the model together.
            on_error: Called with an input that is refused and the error that says why; the others are
                predicted. Default: the error is raised.
            options: Of the task: ``beam=5``, ``n_best=3``, ``top=5``.

        Raises:
            ValueError: If an option is unknown, or, without ``on_error``, an input is refused.
        """
        _check_several("predict", inputs)
        check_integer("batch_size", batch_size, at_least=1)
        chosen = _options(self.task, self.task.predict_options, options)
        return self._predictions(iter(inputs), chosen, attention, batch_size, on_error)

    def _predictions(
        self, inputs: Iterator[Any], options: Any, attention: bool, batch_size: int, on_error: _OnError | None
    ) -> Iterator[Prediction]:
        while some := list(itertools.islice(inputs, batch_size)):
            yield from self._predict_batch(some, options, attention, on_error)

    def _predict_batch(
        self, inputs: list[Any], options: Any, attention: bool, on_error: _OnError | None
    ) -> list[Prediction]:
        """Predict a batch; with ``on_error``, one with a bad input is halved until that input is alone."""
        try:
            with torch.no_grad():
                return list(self.predictor.predict(self.predictor.read(inputs), options, attention=attention))
        except (ValueError, OSError) as problem:
            if on_error is None:
                raise
            if len(inputs) == 1:
                on_error(inputs[0], problem)
                return []
        half = len(inputs) // 2
        return [
            prediction
            for part in (inputs[:half], inputs[half:])
            for prediction in self._predict_batch(part, options, attention, on_error)
        ]

    def evaluate(
        self,
        split: str = "test",
        *,
        data: str | Path | None = None,
        limit: int | None = None,
        batch_size: int = _BATCH,
        attention: bool = False,
        progress: Callable[[int], None] | None = None,
        **options: Any,
    ) -> Evaluation:
        """Score the run on a split of its data, or of other data.

        Several processes, joined by :func:`sightline.train.processes.join`, share the batches: all must
        call it, and each gets the scores that one would have.

        Args:
            split: Which split; ``all`` takes every one.
            data: Other data than the run's own: a folder, a zip, an embedded set.
            limit: Take only the first so many examples.
            batch_size: Examples that go through the model together.
            attention: Whether the predictions tell what the model looked at.
            progress: Called with the number of examples done.
            options: Of the task: ``beam=5``.

        Raises:
            ValueError: If the data is not there, or has no such split.
        """
        check_integer("batch_size", batch_size, at_least=1)
        if limit is not None:
            check_integer("limit", limit, at_least=1)
        chosen = _options(self.task, self.task.evaluate_options, options)
        dataset = self.dataset(data, **_data_settings(self.task, chosen))
        look = attention or self.predictor.needs_attention(dataset)
        examples: list[Example] = []
        predictions: list[Prediction] = []
        source = self.predictor.examples(dataset, split, limit)

        def batches() -> Iterator[list[Example]]:
            while some := list(itertools.islice(source, batch_size)):
                yield some
                examples.extend(dataclasses.replace(x, value=None) for x in some)  # pixels need room

        def predict(some: list[Example]) -> list[Prediction]:
            with torch.no_grad():
                return list(self.predictor.predict(some, chosen, attention=look))

        for found in spread(predict, batches()):
            predictions += found
            if progress is not None:
                progress(len(predictions))
        if not predictions:
            raise ValueError(f"not one example of split {split!r} of {dataset.source!r} could be read")
        scores = self.predictor.score(dataset, examples, predictions, chosen)
        return Evaluation(
            scores=scores.total,
            signatures=scores.signatures,
            predictions=[
                dataclasses.replace(
                    p,
                    references=example.references,
                    metrics={name: values[i] for name, values in scores.each.items()},
                )
                for i, (p, example) in enumerate(zip(predictions, examples, strict=True))
            ],
            about=f"{len(predictions):,} {self.task.unit} of split {split!r} of {dataset.source}"
            f"{scores.about}",
            tables=scores.tables,
            figures=scores.figures,
        )

    def watch(self, inputs: Sequence[Any]) -> Recording:
        """Every attention of the model on some inputs, as :func:`sightline.watch` gives it, q and k kept."""
        _check_several("watch", inputs)
        inputs = list(inputs)
        if not inputs:
            raise ValueError("watch takes at least one input, got none")
        return self.predictor.watch(self.predictor.read(list(inputs)))

    def layers(self, prediction: Prediction) -> Mapping[str, Attention]:
        """Every attention of the model while it made a prediction, by module name, with its tokens."""
        (example,) = self.predictor.read([prediction.input])
        return self.predictor.layers(example, prediction)

    def steps(self, prediction: Prediction) -> Sequence[Step]:
        """The steps in which a prediction was written, and what else each might have been."""
        (example,) = self.predictor.read([prediction.input])
        return self.predictor.steps(example, prediction)

    def dataset(self, data: str | Path | None = None, **changed: Any) -> Any:
        """The data that the run was trained on, or another set read the same way.

        Args:
            data: A folder, a zip or an embedded set; None: the run's own.
            changed: Settings of the data that differ from the run's: ``source="en"``.

        Raises:
            ValueError: If it is not there.
        """
        field = self.task.source_field
        own: Mapping[str, Any] = restore_settings(self.task.data_config, self.config.get("data", {}))
        if data in self.task.embedded and data != own.get(field):  # another set has its own settings
            own = self.task.presets[self.task.embedded[str(data)]].get("data", {})
        settings = dict(own) | changed
        if data is not None:
            check_data(self.task, str(data))
            settings[field] = absolute(self.task, str(data))
        check_still_there(self.task, str(settings.get(field, "")), self.folder)
        config = from_json(self.task.data_config, settings, where=str(self.folder / CONFIG))
        return self.task.dataset(config, self.config["model"])

    def __repr__(self) -> str:
        """Folder, kind and size."""
        n = sum(p.numel() for p in self.model.parameters())
        return f"Run({str(self.folder)!r}, kind={self.kind!r}, {n:,} parameters on {self.device})"


def open_run(folder: str | Path, device: str | torch.device | None = None, *, force: bool = False) -> Run:
    """Open a run folder that ``sightline train`` wrote.

    Args:
        folder: The folder.
        device: Where the model should be. Default: a GPU where there is one.
        force: Open it also where its files are not those that were written, or its weights no numbers; what
            is wrong is logged.

    Raises:
        ValueError: If it is no run folder, or a file in it is missing, damaged or not the one it vouches for.

    Example:
        >>> open_run("runs/nowhere")
        Traceback (most recent call last):
        ValueError: a run is a folder that `sightline train` wrote, 'runs/nowhere' does not exist
    """
    check_bool("force", force)
    folder = Path(folder)
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ValueError(f"a run is a folder that `sightline train` wrote, {str(folder)!r} {what}")
    config = read_config(folder)
    note_version(config, folder)
    kind = config["kind"]
    if kind not in kinds():
        raise ValueError(
            f"a run is of kind {', '.join(map(repr, kinds()))}, {str(folder / CONFIG)!r} is of kind "
            f"{shortened(kind)}; "
            "a task of your own must be registered first"
        )
    task = task_of(kind)
    place = choose_device(device)
    if not (folder / MANIFEST).exists():  # its training was killed, or has not ended
        check_as_written(folder, remedy=FORCE_REMEDY, force=force)
    predictor = task.open(folder, config, place, **({"force": True} if force else {}))
    return Run(folder=folder, task=task, config=config, device=place, predictor=predictor)


def is_run(folder: Path) -> bool:
    """Whether a folder is a run of ours, and no one else's model."""
    try:
        return read_config(folder)["kind"] in kinds()
    except (OSError, ValueError):
        return False


def choose_device(name: str | torch.device | None) -> torch.device:
    """The device of this name; by default a GPU where there is one.

    Raises:
        ValueError: If torch does not know it, or it is not there.
    """
    if name is None or name == "auto":
        return torch.device(_own_gpu() if torch.cuda.is_available() else "cpu")
    check_device(name)
    device = torch.device(name)
    if device.type == "meta":
        raise ValueError(f"there is no device {str(name)!r} here that holds numbers; 'cpu' is there")
    return device


def _own_gpu() -> str:
    """Of several processes on a machine each has its own."""
    return f"cuda:{torch.cuda.current_device()}" if world_size() > 1 else "cuda"


def _options(task: Task, kind: type[Any], given: Mapping[str, Any]) -> Any:
    """The options of a task from keywords."""
    known = [field.name for field in dataclasses.fields(kind)]
    for name in given:
        if name not in known:
            raise ValueError(
                f"unknown option {name!r} for a run of kind {task.kind!r}, "
                + (did_you_mean(name, known) if known else "which takes none")
            )
    chosen = kind(**given)
    check(chosen)
    return chosen


def _data_settings(task: Task, options: Any) -> dict[str, Any]:
    """Options of an evaluation that are settings of the data, where they were given."""
    fields = {field.name for field in dataclasses.fields(task.data_config)}
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    return {name: value for name, value in values.items() if name in fields and value is not None}


def _check_several(what: str, inputs: object) -> None:
    if isinstance(inputs, str | Path):
        raise ValueError(  # noqa: TRY004 - a sentence for users
            f"{what} takes a list of inputs, got {inputs!r} alone; write [{inputs!r}]"
        )
    if not isinstance(inputs, Iterable) or isinstance(inputs, Mapping | torch.Tensor):
        raise TypeError(f"{what} takes a list of inputs, got {format_value(inputs)}")
