"""The folder of a run: opened once, touched again only by those who ask to go on."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sightline.models.saved import CONFIG, read_config, write_config
from sightline.settings import as_json
from sightline.train.config import TrainConfig
from sightline.train.task import Task

__all__ = ["check_free", "open_run"]

_WRITTEN = ("config", "metrics", "model", "tokenizer")


def check_free(out: Path, *, resume: bool) -> None:
    """Refuse a folder that holds anything, unless its run is to go on.

    Raises:
        ValueError: If it is a file, or holds something and ``resume`` was not asked for.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"a run needs a folder, {str(out)!r} is a file; choose another --out")
    if not resume and out.is_dir() and any(out.iterdir()):
        raise ValueError(
            f"the folder {str(out)!r} is not empty, and a run is only touched to go on with it; add "
            "--resume, or choose another --out"
        )


def open_run(
    out: Path,
    model: Any,
    task: Task,
    config: TrainConfig,
    stages: Mapping[str, Mapping[str, Any]],
    *,
    resume: bool,
) -> None:
    """Make the folder with its config and what the task saves, or check that it holds this very run.

    The config is written last: a folder with one is complete.

    Args:
        out: The folder.
        model: Its ``config`` becomes the config's ``model``.
        task: Says what else the folder holds.
        config: Becomes the config's ``train``.
        stages: Settings of further stages by name; a run may get one that it had not before.
        resume: Whether a run that is there is to go on.

    Raises:
        ValueError: If there is another run in it, or one with other settings; the first one that differs is
            named with both values.
    """
    check_free(out, resume=resume)
    of_model = as_json(model.config) if hasattr(model, "config") else {}
    of_training = as_json(config)
    of_data = json.loads(json.dumps(task.data()))
    of_stages = {name: dict(settings) for name, settings in stages.items()}
    if (out / CONFIG).exists():
        there = read_config(out)
        if there["kind"] != task.kind:
            raise ValueError(
                f"{str(out)!r} holds a run of kind {there['kind']!r}, got one of kind {task.kind!r}; "
                "choose another --out"
            )
        _check_same(out, there["model"], of_model)
        _check_same(out, there.get("train", {}), of_training)
        _check_same(
            out, there.get("data", {}), {k: v for k, v in of_data.items() if k not in task.may_change}
        )
        before = there.get("train", {}).get("stages", {})
        for name in before.keys() & of_stages.keys():
            _check_same(out, before[name], of_stages[name])
        of_stages = before | of_stages
    if of_stages:
        of_training["stages"] = of_stages
    for path in out.glob(".*-*"):  # what a killed run was writing when it was killed
        if path.name[1:].partition("-")[0].partition(".")[0] in _WRITTEN and path.is_file():
            path.unlink()
    task.save(out)
    write_config(out, kind=task.kind, model=of_model, data=of_data, train=of_training)


def _check_same(out: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name, value in now.items():
        # A setting that is not there came with a later version, whose default is what was done before.
        if name not in before:
            continue
        if isinstance(value, Mapping) and isinstance(before[name], Mapping):
            _check_same(out, before[name], value)
        elif before[name] != value:
            raise ValueError(
                f"a run goes on with the settings it began with: {name} was {before[name]!r} in "
                f"{str(out)!r}, got {value!r}; leave it out, or choose another --out"
            )
