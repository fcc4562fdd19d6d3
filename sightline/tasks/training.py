"""Train a task: from what was asked for to a run folder.

``train("caption", data="scenes", preset="tiny", out="runs/mine", epochs=2)`` is ``sightline train caption``.
"""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sightline.data.images import sample_path, save_sample
from sightline.messages import check_bool, did_you_mean, logger
from sightline.models.run_folder import CONFIG, WEIGHTS
from sightline.models.weights_file import read_weights
from sightline.tasks.configure import Request, configure, preset_of
from sightline.tasks.registry import task_of
from sightline.tasks.run import Run, open_run
from sightline.tasks.task import Part, Prepared, Settings, Task
from sightline.train.folder import check_free
from sightline.train.loop import fit
from sightline.train.processes import is_main_process, join, together
from sightline.train.record import check_resumed, has_begun

__all__ = ["SuggestedCommands", "train", "train_task"]


class SuggestedCommands(NamedTuple):
    """What a new model can be tried on.

    Attributes:
        sample: An input: a path or a text; empty where there is none at hand.
        split: The split to evaluate it on.
    """

    sample: str
    split: str


def train(
    kind: str,
    *,
    out: str | Path,
    data: str | Path | None = None,
    preset: str | None = None,
    model: str | None = None,
    size: str | None = None,
    resume: bool = False,
    start_from: str | Path | None = None,
    shown: bool = True,
    **fields: Any,
) -> Run:
    """Train a model and open its run: ``sightline train`` for Python.

    Args:
        kind: The task: ``caption``, ``translate``, ``classify``, or one of your own.
        out: The run folder to make.
        data: A folder, a zip, or the name of an embedded set.
        preset: Named settings to start from.
        model: Which of the task's models.
        size: Named widths and depth.
        resume: Go on with the run in ``out``.
        start_from: Start from the weights of another run, as far as they fit.
        shown: Whether progress is shown on standard error.
        fields: Any setting, by the name of its flag: ``epochs=3``, ``d_model=64``; the switch of an optional
            part: ``self_critical=True``.

    Raises:
        ValueError: If a setting is unknown or no good, or the folder is in use.

    Example:
        >>> train("classify", data="digits", out="run", epoch=3)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: unknown setting 'epoch' of classify, expected one of ...
    """
    task = task_of(kind)
    given, parts = _by_part(task, fields)
    request = Request(
        data=None if data is None else str(data),
        preset=preset,
        architecture=model,
        size=size,
        fields=given,
        parts=parts,
    )
    train_task(task, request, Path(out), resume=resume, start_from=start_from, shown=shown)
    return open_run(out)


def train_task(
    task: Task,
    request: Request,
    out: Path,
    *,
    resume: bool = False,
    start_from: str | Path | None = None,
    shown: bool = True,
) -> SuggestedCommands:
    """Train as was asked for; everything that can be refused is refused before any work is done.

    Returns:
        What the model can be tried on.
    """
    check_bool("resume", resume)
    join()
    with together():
        if is_main_process():
            check_free(out, resume=resume)
            if resume:
                check_resumed(out)  # before anything of it is read
    begun = out if resume and (out / CONFIG).exists() else None
    if resume and begun is None:
        logger.info("there is nothing to resume in %r: a new run begins", str(out))
    if begun is not None and start_from is not None:
        raise ValueError(f"--from starts a new run, and {str(out)!r} goes on; leave out --from or --resume")
    settings = configure(task, request, begun=begun)
    check_metrics(task, settings)
    if begun is not None and request.preset is not None:
        _note_unread_preset(task, request, settings)
    torch.manual_seed(settings["train"].seed)
    # Of a run that was killed before its first checkpoint nothing is taken: nothing vouches for it.
    prepared = task.prepare(settings, begun if begun is not None and has_begun(begun) else None)
    for note in prepared.notes if is_main_process() else ():
        logger.info(note)
    if start_from is not None:
        take_weights(prepared, Path(start_from))
    fit(
        prepared.model,
        prepared.objective,
        prepared.train or settings["train"],
        out,
        resume=resume,
        then=prepared.stages,
        finish=lambda folder: _finish(prepared, folder),
        shown=shown,
    )
    sample = prepared.sample
    return SuggestedCommands(sample if isinstance(sample, str) else sample_path(out), prepared.test_split)


def _finish(prepared: Prepared, out: Path) -> None:
    """Write what a run has besides what was trained."""
    if prepared.finish is not None:
        prepared.finish(out)
    if isinstance(prepared.sample, Tensor):
        save_sample(prepared.sample, out)


def check_metrics(task: Task, settings: Settings) -> None:
    """Refuse a metric that the task does not compute, before training."""
    for name, config in settings.items():
        metric = getattr(config, "metric", None)
        if metric is not None and metric not in task.metrics:
            where = "" if name == "train" else f" of the {name.replace('_', '-')} stage"
            raise ValueError(f"unknown metric {metric!r}{where}, {did_you_mean(metric, task.metrics)}")


def take_weights(prepared: Prepared, folder: Path) -> None:
    """Give a new model the weights of another run that fit it; say which did not.

    A parameter fits by name and shape. Where its rows stand for words or classes, those that both runs have
    are taken, each to its own place.

    Raises:
        ValueError: If none fits.
    """
    rows, their_rows = prepared.row_names, open_run(folder, "cpu").predictor.row_names()
    theirs, own = read_weights(folder / WEIGHTS), prepared.model.state_dict()
    fitting: dict[str, Tensor] = {}
    n_taken, new = 0, []
    for name, weight in own.items():
        if name not in theirs or weight.shape[1:] != theirs[name].shape[1:]:
            new.append(name)
        elif name in rows and name in their_rows:
            position = {word: i for i, word in enumerate(their_rows[name])}
            common = [i for i, word in enumerate(rows[name]) if word in position]
            fitting[name] = weight.clone()
            fitting[name][common] = theirs[name][[position[rows[name][i]] for i in common]]
            n_taken += len(common) * weight[:1].numel()
            if len(common) < len(weight):
                new.append(f"{len(weight) - len(common):,} of {len(weight):,} rows of {name}")
        elif weight.shape == theirs[name].shape:
            fitting[name] = theirs[name]
            n_taken += weight.numel()
        else:
            new.append(name)
    if not n_taken:
        raise ValueError(
            f"--from needs a run with weights of the same names and shapes, not one of the {len(theirs)} in "
            f"{str(folder)!r} fits; give both runs the same --model and widths"
        )
    prepared.model.load_state_dict(fitting, strict=False)
    total = sum(weight.numel() for weight in own.values())
    rest = f"; new and untrained: {', '.join(new[:3])}{' ...' if len(new) > 3 else ''}" if new else ""
    logger.info("%s of %s weights are taken from %r%s", f"{n_taken:,}", f"{total:,}", str(folder), rest)


def _by_part(task: Task, fields: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], frozenset[str]]:
    """Settings given by the names of their flags, by part."""
    places: dict[str, tuple[Part, str]] = {}
    for part in task.parts:
        for field in dataclasses.fields(part.config):
            if field.name not in task.no_flags(part):
                places[part.prefix + field.name] = (part, field.name)
    switches = {part.switch: part.name for part in task.parts if part.switch is not None}
    given: dict[str, dict[str, Any]] = {}
    for name, value in fields.items():
        if name in places:
            part, setting = places[name]
            given.setdefault(part.name, {})[setting] = value
        elif name not in switches:
            raise ValueError(
                f"unknown setting {name!r} of {task.kind}, {did_you_mean(name, [*places, *switches])}"
            )
    return given, frozenset(switches[name] for name in fields if name in switches and fields[name])


def _note_unread_preset(task: Task, request: Request, settings: Settings) -> None:
    """Say that a preset is not read where a run goes on, if it would change anything."""
    for part, wishes in task.presets.get(preset_of(task, request), {}).items():
        for name, wish in wishes.items():
            have = getattr(settings.get(part), name, wish)
            if have != wish and name not in request.fields.get(part, {}):
                logger.info(
                    "the run goes on as it was started: %s stays %r, --preset %s would make it %r",
                    name,
                    have,
                    request.preset,
                    wish,
                )
                return
