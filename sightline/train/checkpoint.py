"""Checkpoints: folders that are whole or not there, of tensors and plain JSON, never pickle.

    checkpoints/main/000007/tensors.safetensors      weights, optimizer, moving mean
    checkpoints/main/000007/state.json               where the run is, and the checksums of both
    checkpoints/main/latest.json                     which one to go on from

Where weights are sharded over processes, there is a file of tensors for each (``checkpoint_shards.py``).

A checkpoint is written to a folder of another name, put on the disk, renamed, and only then does
``latest.json`` point to it, by one atomic replacement; the one before is kept until the next. Whatever the
instant at which a run is killed, the pointer names a checkpoint that is whole.
"""

import contextlib
import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sightline.data.files import atomic_write, fsync_path, reason
from sightline.messages import logger
from sightline.models.weights_file import notes_of, read_weights
from sightline.train.checkpoint_shards import ShardedTensors, check_shards, checksums, save_shards
from sightline.train.processes import ProcessLost, from_main, is_main_process, together
from sightline.train.sharding import is_sharded, put
from sightline.train.state import TrainState
from sightline.untrusted import check_regular, need, read_json

__all__ = [
    "RECORD",
    "Checkpoint",
    "Checkpoints",
    "check_same_model",
    "load_weights",
    "read_tensors",
    "weights_of",
    "write_tensors",
]

_POINTER = "latest.json"
_TENSORS = "tensors.safetensors"
_STATE = "state.json"
_FILES = "files"  # of a sharded one: name -> length and checksum
RECORD = "record"  # of what else the run reads; earlier versions wrote none
_DIGEST = "state_sha256"  # earlier versions wrote none


class Checkpoint(NamedTuple):
    """What a run goes on from."""

    tensors: dict[str, Tensor] | ShardedTensors
    state: dict[str, Any]

    def shapes(self) -> dict[str, tuple[torch.Size, torch.dtype]]:
        """The shape and type of each tensor, by name."""
        if isinstance(self.tensors, ShardedTensors):
            return self.tensors.shapes()
        return {name: (tensor.shape, tensor.dtype) for name, tensor in self.tensors.items()}

    def read_into(self, targets: Mapping[str, Tensor]) -> None:
        """Fill these tensors, which may be sharded, whether those of the checkpoint are or not."""
        if isinstance(self.tensors, ShardedTensors):
            self.tensors.read_into(targets)
            return
        for name, target in targets.items():
            put(target, self.tensors[name])


class Checkpoints:
    """The checkpoints of one stage of a run: the latest and the one before it.

    Args:
        folder: The stage's own.
        record: What each checkpoint that is written vouches for besides its tensors (``record.py``).
    """

    def __init__(self, folder: Path, record: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        self._record = record
        self._good: list[str] = []  # names of those known to be whole, the latest last

    def save(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Write a checkpoint; those before the last good one go.

        The main process calls it, or, with tensors that are sharded, every one.

        Raises:
            OSError: If it can't be written; the last good one is as it was, and the sentence says so.
        """
        sharded = any(map(is_sharded, tensors.values()))
        beside = from_main(self._new_folder) if sharded else self._new_folder()
        name = beside.name.split("-")[1]
        try:
            if sharded:
                save_shards(tensors, beside)
                checks: dict[str, Any] = {_FILES: checksums(beside)}
                with together():
                    if is_main_process():
                        self._publish(beside, name, {**state, **checks})
            else:
                data = _bytes(tensors)
                _write(beside / _TENSORS, data)
                self._publish(beside, name, {**state, "bytes": len(data), "crc32": zlib.crc32(data)})
        except ProcessLost:  # the next to come here sweeps
            raise
        except OSError as problem:
            shutil.rmtree(beside, ignore_errors=True)
            shutil.rmtree(self.folder / name, ignore_errors=True)
            raise self._not_written(problem) from problem
        self._good = [*self._good[-1:], name]
        if not sharded or is_main_process():
            self._sweep()

    def _new_folder(self) -> Path:
        """A folder to write in, named after the next number."""
        number = max((int(name) for name in self._names()), default=0) + 1
        beside = self.folder / f".new-{number:06d}-{os.getpid()}"
        shutil.rmtree(beside, ignore_errors=True)  # of a killed run that had the same process number
        try:
            beside.mkdir(parents=True)
        except OSError as problem:
            raise self._not_written(problem) from problem
        return beside

    def _publish(self, beside: Path, name: str, whole: Mapping[str, Any]) -> None:
        """Give a folder of tensors its state and its name, and point to it."""
        whole = dict(whole) if self._record is None else {**whole, RECORD: self._record}
        _write(beside / _STATE, json.dumps({**whole, _DIGEST: _digest(whole)}).encode())
        fsync_path(beside)
        beside.rename(self.folder / name)
        fsync_path(self.folder)
        with atomic_write(self.folder / _POINTER) as pointer:
            pointer.write_text(json.dumps({"checkpoint": name}), encoding="utf-8")

    def _not_written(self, problem: OSError) -> OSError:
        kept = f"checkpoint {self._good[-1]} is whole" if self._good else "none was written before"
        return OSError(
            f"can't write a checkpoint to {str(self.folder)!r}: {reason(problem)}; {kept}: make room and go "
            "on with --resume"
        )

    def latest(self) -> Checkpoint | None:
        """The checkpoint to go on from, or None where none was written; every process gets the same.

        A damaged one is named on standard error, and the one before it taken.

        Raises:
            ValueError: If there are checkpoints and every one is damaged.
        """
        found: list[Checkpoint] = []  # the main process has read it by the time that it is chosen
        name = from_main(lambda: self._choose(found))
        if name is None:
            return None
        self._good = [name]
        with together():
            if not found:
                found.append(_read(self.folder / name, verify=False))
        return found[0]

    def _choose(self, found: list[Checkpoint]) -> str | None:
        damaged = []
        for name in self._candidates():
            try:
                found.append(_read(self.folder / name))
            except (ValueError, OSError) as problem:
                damaged.append(f"checkpoint {str(self.folder / name)!r} is damaged: {problem}")
                continue
            for sentence in damaged:
                logger.warning("%s; going on from %s", sentence, name)
            return name
        if damaged:
            raise ValueError(
                f"{damaged[0]}, and so is every other ({len(damaged)} in all); train again with another --out"
            )
        return None

    def step(self) -> int | None:
        """The step of the checkpoint to go on from, as it says itself; None where there is none."""
        for name in self._candidates()[:1]:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                return int(read_json(self.folder / name / _STATE)["step"])
        return None

    def state(self) -> dict[str, Any]:
        """Return the plain values of the newest checkpoint whose state is sound; empty if there is none."""
        for name in self._candidates():
            with contextlib.suppress(OSError, ValueError):
                return _read_state(self.folder / name)
        return {}

    def _candidates(self) -> list[str]:
        """Names of checkpoints, the pointer's first, then the newest first."""
        names = sorted(self._names(), reverse=True)
        try:
            pointed = read_json(self.folder / _POINTER, at_most=1 << 16)["checkpoint"]
        except (OSError, ValueError, KeyError, TypeError):
            return names
        return sorted(names, key=lambda name: name != pointed)

    def _names(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        return [path.name for path in self.folder.iterdir() if path.name.isdecimal() and path.is_dir()]

    def _sweep(self) -> None:
        """Remove what is neither the latest nor the one before, the leavings of killed runs too."""
        for path in self.folder.iterdir():
            if path.is_dir() and path.name not in self._good:
                shutil.rmtree(path, ignore_errors=True)
            elif path.name.startswith("."):
                path.unlink(missing_ok=True)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """All weights and kept buffers of a model by name; tied ones under each of their names."""
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Give a model weights by name.

    Raises:
        ValueError: If they are another model's; the sentence names the first that doesn't fit.
    """
    own = weights_of(model)
    shapes = {name: tensor.shape for name, tensor in own.items()}
    check_same_model(shapes, {name: tensor.shape for name, tensor in weights.items()}, where)
    for name, tensor in own.items():
        put(tensor, weights[name])


def check_same_model(own: Mapping[str, torch.Size], saved: Mapping[str, torch.Size], where: str) -> None:
    """Compare names and shapes.

    Raises:
        ValueError: If what was saved is another model's; the sentence names the first that doesn't fit.
    """
    for name in own.keys() | saved.keys():
        if own.get(name) != saved.get(name):
            there = tuple(saved[name]) if name in saved else "none"
            here = tuple(own[name]) if name in own else "none"
            raise ValueError(
                f"the weights in {where} are of another model: {name!r} has shape {there} there and {here} "
                "in the model; use the settings that the run was started with"
            )


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write named tensors as safetensors, whole or not at all; tied ones are written under each name."""
    data = _bytes(tensors, notes_of(tensors))
    with atomic_write(path, remedy="make room and go on with --resume") as beside:
        beside.write_bytes(data)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors.

    Raises:
        ValueError: If the file is no whole safetensors file, or its checksum is wrong.
    """
    return read_weights(path)


def _bytes(tensors: Mapping[str, Tensor], notes: dict[str, str] | None = None) -> bytes:
    """Through memory, since a full disk must be the system's OSError, not the library's own."""
    save = need("safetensors.torch", "a checkpoint", "look").save
    seen: set[int] = set()
    plain: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        if own.data_ptr() in seen:
            own = own.clone()
        seen.add(own.data_ptr())
        plain[name] = own
    return save(plain, notes)


def _from_bytes(data: bytes, where: str) -> dict[str, Tensor]:
    library = need("safetensors", "a checkpoint", "look")
    load = need("safetensors.torch", "a checkpoint", "look").load
    try:
        return load(data)
    except library.SafetensorError as problem:
        raise ValueError(f"{where!r} holds no tensors that can be read: {problem}") from problem


def _read(folder: Path, *, verify: bool = True) -> Checkpoint:
    """Read a checkpoint; of one that is sharded, check the files, unless another process has."""
    state = _read_state(folder)
    if _FILES in state:
        if verify:
            check_shards(folder, state[_FILES])
        return Checkpoint(ShardedTensors(folder), state)
    check_regular(folder / _TENSORS)
    data = (folder / _TENSORS).read_bytes()
    if len(data) != state["bytes"]:
        raise ValueError(f"{_TENSORS} has {len(data)} bytes where {state['bytes']} were written")
    if zlib.crc32(data) != state["crc32"]:
        raise ValueError(f"the checksum of {_TENSORS} is wrong")
    return Checkpoint(_from_bytes(data, _TENSORS), state)


def _read_state(folder: Path) -> dict[str, Any]:
    """Read the plain values of a checkpoint, without its tensors."""
    state: Any = read_json(folder / _STATE)
    if not isinstance(state, dict) or not ({"bytes", "crc32"} <= state.keys() or _FILES in state):
        raise ValueError(f"{_STATE} must tell the length and the checksum of {_TENSORS}, and does not")
    digest = state.pop(_DIGEST, None)
    if digest is not None and digest != _digest(state):
        raise ValueError(f"the checksum of {_STATE} is wrong")
    TrainState.restored(state)  # refuses values of other types
    return state


def _digest(state: Mapping[str, Any]) -> str:
    """Of a state's values, however the file is laid out."""
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
