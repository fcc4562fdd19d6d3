"""The folder of a run: opened once, touched again only by those who ask to go on."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from sightline.data.files import lock_path
from sightline.models.manifest import drop_manifest
from sightline.models.run_folder import CONFIG, read_config, write_config
from sightline.settings import as_json, current_names
from sightline.train.checkpoint import Checkpoints
from sightline.train.config import MAIN, MAY_CHANGE, TrainConfig
from sightline.train.objective import Objective
from sightline.train.processes import gather, world_size
from sightline.train.record import Record, check_resumed, record_run, save_beside
from sightline.untrusted import check_unicode

__all__ = [
    "check_alike",
    "check_free",
    "check_same_data",
    "check_seen_by_all",
    "check_there",
    "lock_folder",
    "prepare_folder",
]

_WRITTEN = ("config", "metrics", "model", "tokenizer")


def check_free(out: Path, *, resume: bool) -> None:
    """Refuse a folder that holds anything, unless its run is to go on.

    Raises:
        ValueError: If it is a file, or holds something and ``resume`` was not asked for; or if its name is no
            UTF-8.
    """
    check_unicode(out, "a run")
    if out.exists() and not out.is_dir():
        raise ValueError(f"a run needs a folder, {str(out)!r} is a file; choose another --out")
    if not resume and out.is_dir() and any(out.iterdir()):
        raise ValueError(
            f"the folder {str(out)!r} is not empty, and a run is only touched to go on with it; add "
            "--resume, or choose another --out"
        )


def check_there(out: Path) -> None:
    """Refuse to go on where the run's folder was moved, removed or emptied: what is written would be lost.

    Raises:
        OSError: If its config is not there any more.
    """
    if not (out / CONFIG).is_file():
        raise OSError(
            f"the folder {str(out)!r} was moved or emptied during the training: its {CONFIG} is not "
            "there any more; put it back and add --resume, or train again"
        )


def check_seen_by_all(out: Path) -> None:
    """Refuse a folder that only some of the processes see: they all go on from its checkpoints.

    Raises:
        ValueError: If this process sees another one than the main process.
    """
    if world_size() == 1:
        return
    path = out / CONFIG
    here = path.read_text(encoding="utf-8") if path.is_file() else ""
    if len(set(gather(here))) > 1:
        raise ValueError(
            f"the run folder must be one that all {world_size()} processes see, {str(out)!r} is not: they "
            f"find different files {CONFIG} there; put --out on storage that every machine mounts"
        )


def check_alike(digest: str, model: nn.Module, plan: Sequence[Sequence[int]]) -> None:
    """Refuse processes that would train different things.

    Raises:
        ValueError: If the data, the batches or the shapes of weights of one are not the main one's.
    """
    if world_size() == 1:
        return
    order = hashlib.sha256(json.dumps([list(batch) for batch in plan]).encode()).hexdigest()
    shapes = [(name, list(tensor.shape)) for name, tensor in model.state_dict().items()]
    for what, own in (("data", digest), ("batches", order), ("weights", repr(shapes))):
        everyones = gather(own)
        other = next((i for i, theirs in enumerate(everyones) if theirs != everyones[0]), None)
        if other is not None:
            raise ValueError(
                f"all processes must train on the same, and the {what} of process {other} are not those of "
                "process 0; do all machines have the same files and the same version?"
            )


def check_same_data(out: Path, before: str, now: str) -> None:
    """Refuse to go on with other data than those that a run began with, by their digests.

    Raises:
        ValueError: If both are known and differ.
    """
    if before and now and before != now:
        raise ValueError(
            f"a run goes on with the data it began with, named {before} in {str(out)!r}, and these are named "
            f"{now}: examples were added, removed or changed; give it the former ones, or choose another "
            "--out"
        )


@contextmanager
def lock_folder(out: Path, *, resume: bool) -> Iterator[None]:
    """Keep a run folder for this process, made if it is not there: two that write to one would ruin it.

    The lock is the system's, on the folder itself: it leaves no file, and a killed process loses it.

    Raises:
        ValueError: If the folder is in use and not to go on, or another process holds it.
    """
    check_free(out, resume=resume)
    out.mkdir(parents=True, exist_ok=True)
    refusal = (
        f"one process at a time may train in {str(out)!r}, and another does; wait for it, or choose another "
        "--out"
    )
    with lock_path(out, refusal=refusal):
        yield


def prepare_folder(
    out: Path,
    model: Any,
    objective: Objective,
    config: TrainConfig,
    stages: Mapping[str, Mapping[str, Any]],
) -> Record:
    """Write the config and what the objective saves into the folder, or check that it holds this very run.

    The config is written last: a folder with one is complete.

    Args:
        out: The folder.
        model: Its ``config`` becomes the config's ``model``.
        objective: Says what else the folder holds.
        config: Becomes the config's ``train``.
        stages: Settings of further stages by name; a run may get one that it had not before.

    Returns:
        What the checkpoints of the run vouch for.

    Raises:
        ValueError: If there is another run in it, or one with other settings; the first one that differs is
            named with both values.
    """
    there = read_config(out) if (out / CONFIG).exists() else None
    if there is not None and there["kind"] != objective.kind:
        raise ValueError(
            f"{str(out)!r} holds a run of kind {there['kind']!r}, got one of kind {objective.kind!r}; "
            "choose another --out"
        )
    check_resumed(out)
    of_model = as_json(model.config) if hasattr(model, "config") else {}
    of_training = as_json(config)
    of_data = json.loads(json.dumps(objective.data()))
    of_stages = {name: dict(settings) for name, settings in stages.items()}
    if there is not None:
        model_before = there["model"]
        if of_model:
            model_before = current_names(type(model.config), model_before)
        _check_same(out, model_before, of_model)
        _check_same(out, there.get("train", {}), of_training, MAY_CHANGE)
        _check_longer(out, there.get("train", {}), config)
        _check_same(out, there.get("data", {}), of_data, objective.may_change)
        before = there.get("train", {}).get("stages", {})
        for name in before.keys() & of_stages.keys():
            _check_same(out, before[name], of_stages[name])
        of_stages = before | of_stages
    if of_stages:
        of_training["stages"] = of_stages
    trained_on = Checkpoints(out / "checkpoints" / MAIN).state().get("digest", "")
    check_same_data(out, trained_on, objective.digest())
    drop_manifest(out)  # nothing was written before
    for path in out.glob(".*-*"):  # what a killed run was writing when it was killed
        if path.name[1:].partition("-")[0].partition(".")[0] in _WRITTEN and path.is_file():
            path.unlink()
    names = save_beside(out, objective)
    write_config(out, kind=objective.kind, model=of_model, data=of_data, train=of_training)
    return record_run(out, objective, names)


def _check_longer(out: Path, before: Mapping[str, Any], config: TrainConfig) -> None:
    """Refuse fewer epochs or steps than a run was started with: what has been trained stays trained."""
    for name in ("epochs", "steps"):
        was, now = before.get(name), getattr(config, name)
        if was is not None and now is not None and now < was:
            raise ValueError(
                f"a run that goes on may train longer, not less: {name} was {was} in {str(out)!r}, got "
                f"{now}; leave it out, or choose another --out"
            )


def _check_same(
    out: Path, before: Mapping[str, Any], now: Mapping[str, Any], may_change: frozenset[str] = frozenset()
) -> None:
    for name, value in now.items():
        # A setting that is not there came with a later version, whose default is what was done before.
        if name not in before or name in may_change:
            continue
        if isinstance(value, Mapping) and isinstance(before[name], Mapping):
            _check_same(out, before[name], value)
        elif before[name] != value:
            raise ValueError(
                f"a run goes on with the settings it began with: {name} was {before[name]!r} in "
                f"{str(out)!r}, got {value!r}; leave it out, or choose another --out"
            )
