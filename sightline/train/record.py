"""What the checkpoints of a run vouch for besides their tensors: its settings, and the files that it reads.

A manifest is written when a training ends or is stopped by a signal. A run that was killed has none: what it
was trained with is in the record that each of its checkpoints has. :func:`check_as_written` compares a run
folder with the one or the other before anything of it is used.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sightline.messages import logger, shortened
from sightline.models.manifest import MANIFEST, changed_files, check_unchanged, entries_of
from sightline.models.run_folder import CONFIG, WEIGHTS, read_config
from sightline.models.weights_file import read_weights
from sightline.train.checkpoint import RECORD, Checkpoints
from sightline.train.config import MAY_CHANGE
from sightline.train.objective import Objective

__all__ = [
    "Record",
    "check_as_written",
    "check_resumed",
    "damaged_weights",
    "has_begun",
    "record_run",
    "save_beside",
    "stages_of",
]

_TOKENIZERS = "tokenizer*.json"  # read from a run that has no record

Record = Mapping[str, Mapping[str, Any]]


def save_beside(out: Path, objective: Objective) -> list[str]:
    """Write what later commands need beside the config, and return the names of these files.

    A run that goes on keeps its own: they have been checked, and checkpoints vouch for them as they are.
    """
    record = _read_record(out)
    if record is not None and all((out / name).exists() for name in record["files"]):
        return sorted(record["files"])
    before = set(_names(out))
    objective.save(out)
    return sorted({*_names(out)} - before | {path.name for path in out.glob(_TOKENIZERS)})


def record_run(out: Path, objective: Objective, names: list[str]) -> Record:
    """Return what checkpoints vouch for: the settings that may not change, and the files of these names."""
    config = read_config(out)
    may_change = {"train": MAY_CHANGE, "data": objective.may_change, "model": frozenset()}
    settings = {
        part: {name: value for name, value in config[part].items() if name not in changing}
        for part, changing in may_change.items()
    }
    return {
        "settings": {"kind": config["kind"], "version": config["version"], **settings},
        "files": entries_of(out, names),
    }


def _read_record(out: Path) -> Record | None:
    """Return the record of a run's latest checkpoint; None where there is no checkpoint that has one."""
    states = (Checkpoints(stage).state() for stage in stages_of(out))
    return next((state[RECORD] for state in states if RECORD in state), None)


def has_begun(out: Path) -> bool:
    """Whether something has been trained in a folder; until then what lies there may be made anew."""
    return (out / MANIFEST).exists() or any(Checkpoints(stage).state() for stage in stages_of(out))


def stages_of(out: Path) -> list[Path]:
    """Return the folders of a run's stages."""
    return sorted(path for path in (out / "checkpoints").glob("*") if path.is_dir())


def damaged_weights(out: Path) -> list[str]:
    """Return a sentence for each file of weights of a run that can't be read, or has a wrong checksum."""
    train = read_config(out).get("train", {})
    averaged = any(part.get("average_last") for part in (train, *train.get("stages", {}).values()))
    names = [WEIGHTS, "epoch-*.safetensors"] if averaged else [WEIGHTS]  # else epochs are leavings
    sentences = []
    for path in (*out.glob(WEIGHTS), *(path for name in names for path in out.glob(f"checkpoints/*/{name}"))):
        try:
            read_weights(path)
        except (ValueError, OSError) as problem:
            sentences.append(str(problem))
    return sentences


def check_resumed(out: Path) -> None:
    """Refuse to go on with a run whose files are not as they were.

    Raises:
        ValueError: For the first that differs.
    """
    check_as_written(out, remedy="copy the run anew, or train into another folder")
    if not stages_of(out):
        return
    if not (out / CONFIG).exists():
        raise ValueError(f"{str(out)!r} has checkpoints and no {CONFIG}; copy the run anew")
    for sentence in damaged_weights(out):
        raise ValueError(sentence)


def check_as_written(out: Path, *, remedy: str, force: bool = False) -> None:
    """Refuse a run whose files are not those of its manifest, or, where it has none, of its checkpoints.

    Args:
        out: The run; one without either vouches for nothing and is taken as it is.
        remedy: Ends the sentence.
        force: Log it and go on.

    Raises:
        ValueError: For the first file, or setting, that differs.
    """
    if (out / MANIFEST).exists():
        check_unchanged(out, remedy=remedy, force=force)
        return
    record = _read_record(out)
    sentence = None if record is None else _difference(out, record)
    if sentence is None:
        return
    if not force:
        raise ValueError(f"{sentence}; {remedy}")
    logger.warning("%s; opened all the same", sentence)


def _difference(out: Path, record: Record) -> str | None:
    """Return a sentence for the first file or setting that is not as it was; None where all are."""
    changed = changed_files(out, record["files"], record["files"])
    if not (out / CONFIG).exists():
        changed[CONFIG] = "is missing"
    for name, what in changed.items():
        return f"the files of {str(out)!r} are not those that it was trained with: {name!r} {what}"
    before, now = dict(record["settings"]), read_config(out)
    same_version = before.pop("version") == now.get("version")
    for name, was, value in _changed_settings(before, now, same_names=same_version):
        return (
            f"the settings of {str(out)!r} are not those that it was trained with: {name} was "
            f"{shortened(was)} and is {value} in {CONFIG}"
        )
    return None


def _changed_settings(
    before: Mapping[str, Any], now: Mapping[str, Any], *, same_names: bool
) -> Iterator[tuple[str, Any, str]]:
    """Yield each setting that differs: its name, what it was and what it is. Versions may rename some."""
    for name, was in before.items():
        if name not in now:
            if same_names:
                yield name, was, "missing"
        elif isinstance(was, Mapping) and isinstance(now[name], Mapping):
            yield from _changed_settings(was, now[name], same_names=same_names)
        elif was != now[name]:
            yield name, was, shortened(now[name])


def _names(out: Path) -> list[str]:
    return [path.name for path in out.iterdir() if path.is_file() and not path.name.startswith(".")]
