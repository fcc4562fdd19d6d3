"""From a preset, a saved run and what was asked for to the settings of a training.

The layers, each over the one before: the defaults of the dataclasses, a preset or the run that goes on, a
named size, and what was asked for.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sightline.data.shard_files import is_there
from sightline.messages import did_you_mean, flag, listing
from sightline.models.run_folder import read_config
from sightline.settings import current_names, from_json, restore_settings
from sightline.tasks.task import Part, Preset, Settings, Task

__all__ = ["Request", "absolute", "check_data", "check_still_there", "configure", "preset_of", "saved_preset"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a user asks of a training.

    Attributes:
        data: A folder, a zip or an embedded set; None: as the preset or the run says.
        preset: The name of a preset, or None.
        architecture: What ``--model`` says, or None.
        size: What ``--size`` says, or None.
        fields: Settings by part and field.
        parts: Names of optional parts that are asked for.
    """

    data: str | None = None
    preset: str | None = None
    architecture: str | None = None
    size: str | None = None
    fields: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    parts: frozenset[str] = frozenset()


def configure(task: Task, request: Request, *, begun: Path | None = None) -> Settings:
    """The settings of a training, by part.

    Args:
        task: What is trained.
        request: What was asked for.
        begun: The folder of a run that goes on, or None for a new one.

    Raises:
        ValueError: If something asked for is unknown, or does not belong to what is trained.
    """
    _check_known("model", request.architecture, task.architectures)
    _check_known("size", request.size, task.sizes)
    base = saved_preset(task, begun) if begun else task.presets.get(preset_of(task, request), {})
    present = {part.name for part in task.parts if part.switch is None or part.name in base} | request.parts
    _check_present(task, request, present)
    values = _layered(task, request, base)
    _turn_off_overridden(task, request, values)
    _set_source(task, request, values["data"], begun)
    for part in task.parts:  # a nested part is set inside the one that holds it
        if len(part.inside) == 2:
            holder, field = part.inside
            values[holder][field] = {**values[holder].get(field, {}), **values[part.name]}
        elif part.inside:
            values[part.inside[0]].update(values[part.name])
    if task.architectures:
        _choose_architecture(task, request, base, values)
    parts = [part for part in task.parts if part.name in present and not part.inside]
    return Settings(
        task.kind,
        {part.name: _make(part, _config_type(task, part, values), values[part.name]) for part in parts},
        {part.name: frozenset(values[part.name]) for part in parts},
    )


def preset_of(task: Task, request: Request) -> str:
    """The preset that is meant: the one named, the one of an embedded set, or ``default``.

    With ``--model NAME`` the preset for that model is taken, where there is one.

    Raises:
        ValueError: If there is none of that name.
    """
    name = request.preset or task.embedded.get(request.data or "", "default")
    architecture = request.architecture or _implied_architecture(task, request)
    name = f"{name}-{architecture}" if f"{name}-{architecture}" in task.presets else name
    if name not in task.presets and name != "default":
        raise ValueError(f"unknown preset {name!r} for {task.kind}, {did_you_mean(name, task.presets)}")
    return name


def saved_preset(task: Task, folder: Path) -> Preset:
    """The settings that a run was started with, by part."""
    saved = read_config(folder)
    if saved["kind"] != task.kind:
        raise ValueError(
            f"{str(folder)!r} holds a run of kind {saved['kind']!r}; go on with it by "
            f"`sightline train {saved['kind']} --resume`"
        )
    train = dict(saved.get("train", {}))
    stages = train.pop("stages", {})
    data = restore_settings(task.data_config, saved.get("data", {}))
    parts = {"model": dict(saved.get("model", {})), "data": data, "train": train}
    return parts | {part.name: stages[part.stage] for part in task.parts if part.stage in stages}


def check_data(task: Task, data: str) -> None:
    """Refuse data that is not there, or that the task does not read.

    Raises:
        ValueError: With what the task takes.
    """
    if data not in task.embedded and not (task.reads_files and is_there(data)):
        takes = task.data_help if task.reads_files else listing([repr(name) for name in task.embedded], "or")
        raise ValueError(f"there is no data {data!r}; give {takes[0].lower()}{takes[1:].removesuffix('.')}")


def check_still_there(task: Task, source: str, folder: Path) -> None:
    """Refuse a run whose data has moved.

    Raises:
        ValueError: With the way to say where it is now.
    """
    if source not in task.embedded and not is_there(source):
        raise ValueError(
            f"the data of {str(folder)!r} was {source!r}, which is not there any more; say where it is now "
            "with --data (in Python: data=...)"
        )


def absolute(task: Task, data: str) -> str:
    """Where data lies, whatever folder a later command is called from; an embedded set is its name."""
    return data if data in task.embedded else str(Path(data).expanduser().resolve())


def _layered(task: Task, request: Request, base: Preset) -> dict[str, dict[str, Any]]:
    """The values of each part: the preset's or the run's, a size's over them, what was asked for on top."""
    sized: Preset = {"model": task.sizes[request.size]} if request.size else {}
    values: dict[str, dict[str, Any]] = {part.name: {} for part in task.parts}
    for layer in (base, sized, request.fields):
        for name, fields in layer.items():
            values[name].update(current_names(_part(task, name).config, fields))
    return values


def _check_present(task: Task, request: Request, present: set[str]) -> None:
    """Refuse settings of a part that there will not be."""
    for part in task.parts:
        asked = request.fields.get(part.name)
        if asked and part.name not in present:
            raise ValueError(
                f"{flag(part.prefix + next(iter(asked)))} is for the {part.title.lower()}, which was not "
                f"asked for; add {flag(part.switch or '')}"
            )


def _set_source(task: Task, request: Request, data: dict[str, Any], begun: Path | None) -> None:
    """Note where the data lies; there must be some."""
    if request.data is not None:
        check_data(task, request.data)
        data[task.source_field] = absolute(task, request.data)
    elif begun is not None:
        check_still_there(task, str(data.get(task.source_field, "")), begun)
    if task.source_field not in data:
        sets = [repr(name) for name in task.embedded]
        raise ValueError(
            f"a training needs data; add --data with {listing(['a folder', 'a zip', *sets], 'or')}"
        )


def _turn_off_overridden(task: Task, request: Request, values: dict[str, dict[str, Any]]) -> None:
    """Obey what was asked for where a preset has another setting that would overrule it.

    Raises:
        ValueError: If both were asked for.
    """
    asked = {
        f"{part}.{name}": value for part, fields in request.fields.items() for name, value in fields.items()
    }
    for first, second in task.overrides.items():
        if first not in asked:
            continue
        part, name = second.split(".")
        if asked.get(second) is not None:
            own = first.partition(".")[2]
            raise ValueError(
                f"{flag(own)} and {flag(name)} say the same thing in two ways, got {asked[first]} and "
                f"{asked[second]}; give one of them"
            )
        values[part][name] = None
    if asked.keys() & {"train.epochs", "train.steps"} and "train.min_steps" not in asked:
        values["train"]["min_steps"] = None


def _part(task: Task, name: str) -> Part:
    return next(part for part in task.parts if part.name == name)


def _implied_architecture(task: Task, request: Request) -> str | None:
    """The model that a given flag belongs to, where only one has it."""
    for part in task.parts:
        if part.inside == ("model",) and request.fields.get(part.name):
            return part.name
    return None


def _choose_architecture(
    task: Task, request: Request, base: Preset, values: dict[str, dict[str, Any]]
) -> None:
    """Note which model is meant, and refuse settings that it does not have."""
    field = task.architecture_field
    before = base.get("model", {}).get(field)
    name = (
        request.architecture
        or _implied_architecture(task, request)
        or before
        or next(iter(task.architectures))
    )
    config = task.architectures[name]
    known = {x.name for x in dataclasses.fields(config)}
    for part in task.parts:
        if part.name == "model" or part.inside == ("model",):
            for asked in request.fields.get(part.name, {}):
                if asked not in known:
                    raise ValueError(
                        f"{flag(asked)} is no setting of the {name} model, {did_you_mean(asked, known)}"
                    )
    values["model"] = {key: value for key, value in values["model"].items() if key in known} | {field: name}


def _config_type(task: Task, part: Part, values: Mapping[str, Mapping[str, Any]]) -> type[Any]:
    if part.name != "model" or not task.architectures:
        return part.config
    return task.architectures[values["model"][task.architecture_field]]


def _make(part: Part, config: type[Any], values: Mapping[str, Any]) -> Any:
    """Settings of a part; where its flags have a prefix, a complaint says whose setting it is about."""
    try:
        return from_json(config, values, where=part.name)
    except ValueError as problem:
        if not part.prefix:
            raise
        raise ValueError(f"{part.title.lower()}: {problem}") from None


def _check_known(what: str, name: str | None, known: Mapping[str, Any]) -> None:
    if name is not None and name not in known:
        raise ValueError(f"unknown {what} {name!r}, {did_you_mean(name, known)}")
