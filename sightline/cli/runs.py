"""Opening a run folder: which kind of model it holds, its parts, and what the commands ask of each kind.

A kind is taught to a command by a module of a known name, so that each kind's code stands apart:
``cli/evaluate_KIND.py`` has ``evaluate(asked: Asked) -> Evaluated``, ``cli/look_KIND.py`` has
``look(run: Path, given: str, wanted: Look) -> None``.
"""

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from sightline.models.run_folder import CONFIG, kind_of, read_config

__all__ = ["Asked", "Evaluated", "Look", "chosen_device", "for_kind", "kind_in", "settings_in"]

KINDS = ("caption", "translate", "classify")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What ``sightline evaluate`` was asked.

    Attributes:
        run: The run folder.
        split: Which split; ``all`` is every one.
        beam: Width of the search, where there is one.
        data: Another folder, zip or embedded set than the run's own, or None.
        source, target: What a translator's languages are called in the data, if not as in the run.
        most: Take only the first so many examples, or None.
        batch_size: Examples that go through the model together.
        device: Where the model runs.
        wants_pictures: Whether :attr:`Evaluated.files` will be written.
        extras: Names of further scores or ways to compute them: ``meteor``, ``ptb``.
    """

    run: Path
    split: str = "test"
    beam: int = 5
    data: str | None = None
    source: str | None = None
    target: str | None = None
    most: int | None = None
    batch_size: int = 64
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    wants_pictures: bool = False
    extras: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """What an evaluation found.

    Attributes:
        scores: By the names that are promised for this kind of model.
        signatures: How they were computed, where that can be said in a line.
        about: What was evaluated, in a few words: "500 images of split 'test', beam 5".
        files: Further files by name, text each, for the folder that --out names.
    """

    scores: Mapping[str, float]
    signatures: Mapping[str, str] = field(default_factory=dict)
    about: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Look:
    """What ``sightline look RUN`` was asked.

    Attributes:
        out: A page (.html), a figure (.png, ...), or None for a table alone.
        layer: Which layer, as it was given, or None.
        head: Which head, or None for the mean of all.
        beam: Width of the search, where there is one.
        as_json: Whether to print one JSON object.
        device: Where the model runs.
    """

    out: Path | None = None
    layer: str | None = None
    head: int | None = None
    beam: int = 5
    as_json: bool = False
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


def is_run(folder: Path) -> bool:
    """Whether a folder is a run of ours, and no one else's model."""
    try:
        return kind_of(folder) in KINDS
    except (OSError, ValueError):
        return False


def kind_in(folder: Path, *expected: str) -> str:
    """The kind of a run, one of those expected if any are.

    Raises:
        ValueError: If it is no run folder, or of a kind that the command does not know.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ValueError(f"a run is a folder that `sightline train` wrote, {str(folder)!r} {what}")
    kind = kind_of(folder)
    if kind not in (expected or KINDS):
        known = ", ".join(map(repr, expected or KINDS))
        raise ValueError(
            f"this command takes a run of kind {known}, {str(folder / CONFIG)!r} is of kind {kind!r}"
        )
    return kind


def settings_in(folder: Path, part: str) -> dict[str, Any]:
    """One part of a run's config."""
    found = read_config(folder).get(part, {})
    if not isinstance(found, dict):
        raise ValueError(  # noqa: TRY004  the file is wrong, not an argument's type
            f"{part!r} in {str(folder / CONFIG)!r} must be an object, got {type(found).__name__}"
        )
    return found


def for_kind(command: str, kind: str) -> Any:
    """The module that teaches a command about a kind of model."""
    name = f"sightline.cli.{command}_{kind}"
    if importlib.util.find_spec(name) is None:
        raise ValueError(f"sightline {command} does not know runs of kind {kind!r} yet")
    return importlib.import_module(name)


def chosen_device(name: str | None) -> torch.device:
    """The device of this name; by default a GPU where there is one.

    Raises:
        ValueError: If torch does not know it, or it is not there.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        if name.lower().startswith("gpu"):
            meant = f"cuda{name[3:]}"
            raise ValueError(f"there is no device {name!r} here; did you mean {meant!r}?") from None
        reason = str(problem).partition("\n")[0]
        raise ValueError(f"there is no device {name!r} here: {reason}; try --device cpu") from None
    return device
