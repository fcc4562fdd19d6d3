"""Named tensors in a safetensors file, and what is asked of them before they become a model's.

Files that a training writes have a checksum of their tensors among their notes: until it ends, the run has no
manifest that would tell damage.
"""

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sightline.data.files import atomic_write
from sightline.messages import logger, shortened
from sightline.untrusted import check_regular, need

__all__ = [
    "check_bounds",
    "check_finite",
    "check_shapes",
    "notes_of",
    "read_shapes",
    "read_weights",
    "write_weights",
]

_CHECKSUM = "crc32"


def write_weights(path: Path | str, weights: Mapping[str, torch.Tensor]) -> None:
    """Write named tensors to a safetensors file, whole or not at all."""
    library = need("safetensors", "saving a model", "look")
    save_file = need("safetensors.torch", "saving a model", "look").save_file

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    with atomic_write(Path(path)) as beside:
        try:
            save_file(tensors, beside)
        except library.SafetensorError as problem:  # its own kind of error, a full disk included
            raise OSError(str(problem)) from problem


def read_weights(path: Path | str, *, force: bool = False) -> dict[str, torch.Tensor]:
    """Read the named tensors of a safetensors file.

    Args:
        path: The file.
        force: Read it also where its checksum is wrong, which is logged.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is damaged.
    """
    tensors: dict[str, torch.Tensor] = {}
    notes: Mapping[str, str] = {}
    for file, name in _tensors(Path(path)):
        notes = file.metadata() or {}
        tensors[name] = file.get_tensor(name)
    if _CHECKSUM in notes and notes[_CHECKSUM] != notes_of(tensors)[_CHECKSUM]:
        sentence = f"the weights in {str(path)!r} are not those that were written: their checksum is wrong"
        if not force:
            raise ValueError(f"{sentence}; copy the file anew")
        logger.warning("%s; opened all the same", sentence)
    return tensors


def notes_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Return the notes of a file of these tensors: a checksum of their names, types, shapes and values."""
    checksum = 0
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        checksum = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), checksum)
        checksum = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, checksum)
    return {_CHECKSUM: f"{checksum:08x}"}


def read_shapes(path: Path | str) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors of a safetensors file by name, from its header alone."""
    return {name: tuple(file.get_slice(name).get_shape()) for file, name in _tensors(Path(path))}


def _tensors(path: Path) -> Iterator[tuple[Any, str]]:
    """The open file with each of its names.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is damaged.
    """
    library = need("safetensors", "a run", "look")
    if not path.exists():
        raise FileNotFoundError(
            f"a run folder has its weights in {path.name}, {str(path.parent)!r} has none yet: the training "
            "was stopped before its first evaluation; go on with it by `sightline train` and --resume"
        )
    check_regular(path)
    try:
        with library.safe_open(path, framework="pt") as file:
            yield from ((file, name) for name in file.keys())  # noqa: SIM118 - it is no mapping
    except library.SafetensorError as problem:
        raise ValueError(
            f"the weights in {str(path)!r} are damaged: {problem}; the file has {path.stat().st_size} bytes, "
            "was it copied whole?"
        ) from problem


_Shapes = Mapping[str, tuple[int, ...]]


def check_bounds(model: Mapping[str, Any], shapes: _Shapes, path: Path) -> None:
    """Refuse settings that no weights of these shapes can have, before even an outline is made."""
    widest = max((side for shape in shapes.values() for side in shape), default=0)
    for name, most, what in (
        ("d_model", widest, "no tensor is wider than"),
        ("n_layers", len(shapes), "there are only so many tensors:"),
    ):
        value = model.get(name, 0)
        if isinstance(value, int) and value > most:
            raise ValueError(
                f"the weights in {str(path)!r} don't fit the model that config.json describes: {name} is "
                f"{shortened(value)} and {what} {most}; the two files belong to different runs"
            )


def check_shapes(outline: nn.Module, shapes: _Shapes, path: Path) -> None:
    """Refuse weights of other names or shapes than the model's."""
    own = {name: tuple(tensor.shape) for name, tensor in outline.state_dict().items()}
    for name in [*own, *shapes]:
        here, there = own.get(name), shapes.get(name)
        if here != there:
            raise ValueError(
                f"the weights in {str(path)!r} don't fit the model that config.json describes: {name!r} has "
                f"shape {there or 'none'} there and {here or 'none'} in the model; the two files belong to "
                "different runs"
            )


def check_finite(weights: Mapping[str, torch.Tensor], path: Path, *, force: bool) -> None:
    """Refuse weights that are no numbers: all that such a model says is noise."""
    for name, weight in weights.items():
        if weight.is_floating_point() and not bool(weight.isfinite().all()):
            count = int((~weight.isfinite()).sum())
            of = f"{count} of {weight.numel()} in {name!r} of {str(path)!r}"
            sentence = f"weights must be finite numbers, {of} are not"
            if not force:
                raise ValueError(f"{sentence}; train again, or open it with --force (force=True)")
            logger.warning("%s; opened all the same", sentence)
            return
