"""Whether a run is as its training left it: its files, its checkpoints and its weights."""

from dataclasses import dataclass
from pathlib import Path

from sightline.models.manifest import MANIFEST, changed_files, read_manifest
from sightline.models.run_folder import read_config
from sightline.tasks.run import open_run
from sightline.train.checkpoint import Checkpoints

__all__ = ["Verification", "verify_run"]


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was found.

    Attributes:
        kind: Of the run.
        n_files, n_bytes: Files that the run vouches for, and what they have together.
        problems: A sentence for each thing that is wrong.
    """

    kind: str
    n_files: int
    n_bytes: int
    problems: tuple[str, ...]


def verify_run(folder: str | Path) -> Verification:
    """Hold every file of a run against its manifest, read all checkpoints, and open the model.

    Raises:
        OSError: If it is no run folder.
        ValueError: If its config or its manifest can't be read.
    """
    folder = Path(folder)
    config, manifest = read_config(folder), read_manifest(folder)
    changed = {} if manifest is None else changed_files(folder, manifest, manifest)
    problems = [f"{name!r} {what}" for name, what in changed.items()]
    problems += _damaged_checkpoints(folder)
    if not changed:
        try:
            open_run(folder, "cpu")
        except (ValueError, OSError) as problem:
            problems.append(str(problem))
    if manifest is None:
        problems.append(
            f"{str(folder)!r} has no {MANIFEST}, so nothing tells whether its files are those that were "
            "written: its training has not ended, or an earlier version wrote it; --write vouches for them "
            "from now on"
        )
    files = manifest or {}
    return Verification(
        kind=config["kind"],
        n_files=len(files),
        n_bytes=sum(entry["bytes"] for entry in files.values()),
        problems=tuple(dict.fromkeys(problems)),
    )


def _damaged_checkpoints(folder: Path) -> list[str]:
    stages = sorted(path for path in (folder / "checkpoints").glob("*") if path.is_dir())
    return [sentence for stage in stages for sentence in Checkpoints(stage).damaged()]
