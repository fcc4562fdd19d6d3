"""The folder of a run: opened once, touched again only by those who ask to go on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sightline.models.saved import CONFIG, read_config, write_config
from sightline.settings import as_json
from sightline.train.config import TrainConfig
from sightline.train.task import Task

__all__ = ["check_free", "open_run"]


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
    stages: Mapping[str, TrainConfig],
    *,
    resume: bool,
) -> None:
    """Make the folder with its config and what the task saves, or check that it holds this very run.

    The config is written last: a folder with one is complete.

    Raises:
        ValueError: If there is another run in it, or one with other settings; the first one that differs is
            named with both values.
    """
    check_free(out, resume=resume)
    settings = as_json(config) | ({"stages": {k: as_json(v) for k, v in stages.items()}} if stages else {})
    model_settings = as_json(model.config) if hasattr(model, "config") else {}
    if (out / CONFIG).exists():
        _check_same(out, task.kind, model_settings, settings)
    task.save(out)
    write_config(out, kind=task.kind, model=model_settings, data=task.data(), train=settings)


def _check_same(out: Path, kind: str, model: Mapping[str, Any], train: Mapping[str, Any]) -> None:
    there = read_config(out)
    if there["kind"] != kind:
        raise ValueError(f"{str(out)!r} holds a run of kind {there['kind']!r}, got one of kind {kind!r}")
    for part, now in (("model", model), ("train", train)):
        before = there.get(part, {})
        for name in now:
            # A further stage may be added to a run; what has been trained can't be changed.
            if name != "stages" and before.get(name) != now[name]:
                raise ValueError(
                    f"a run goes on with the settings it began with: {name} was {before.get(name)!r} in "
                    f"{str(out)!r}, got {now[name]!r}; leave it out, or choose another --out"
                )
