"""Sights on disk: one safetensors file each, written whole or not at all."""

import json
import os
from pathlib import Path

from sightline.look.sight import Sight

_FORMAT = "sightline.Sight/1"
_ABOUT = ("t", "s", "lead", "name", "averaged", "n_batch")


def save(sight: Sight, path: str | Path) -> None:
    """Write the statistics, and what they are statistics of."""
    from safetensors.torch import save as to_bytes  # noqa: PLC0415

    path = Path(path)
    if path.is_dir():
        raise ValueError(
            f"a sight is saved as a file, got the folder {path}; add a name, such as look.safetensors"
        )
    if not path.parent.is_dir():
        raise ValueError(f"a sight is saved in a folder that exists, got {path}; make {path.parent} first")
    about = {name: getattr(sight, name) for name in _ABOUT}
    tensors = {name: x.detach().contiguous() for name, x in sight.statistics.items()}
    data = to_bytes(tensors, metadata={"format": _FORMAT, "about": json.dumps(about)})
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        unfinished.write_bytes(data)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def load(path: str | Path) -> Sight:
    """Read a sight back; it has its statistics and no q and k."""
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415

    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no sight at {path}; Sight.save writes one")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file or is cut short: {error}") from None
    if metadata.get("format") != _FORMAT:
        raise ValueError(f"{path} holds no sight, its format is {metadata.get('format')!r}, not {_FORMAT!r}")
    try:
        about = json.loads(metadata["about"])
        about = {name: about[name] for name in _ABOUT}
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is damaged, what it says of itself is {metadata.get('about')!r}") from None
    return Sight(**about | {"lead": tuple(about["lead"]), "statistics": tensors})
