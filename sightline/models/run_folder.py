"""A run folder: ``config.json`` says what a model is, ``model.safetensors`` holds its weights.

    model.save(folder)                     # either file is written whole or not at all
    model = Captioner.load(folder)         # nothing in the folder is ever executed

``config.json`` is one object with ``kind``, ``version``, ``model``, ``data`` and ``train``.
"""

import json
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

from sightline.data.files import atomic_write
from sightline.settings import as_json, from_json

__all__ = ["CONFIG", "WEIGHTS", "SaveableModel", "kind_of", "read_config", "write_config"]

_Model = TypeVar(
    "_Model", bound="SaveableModel"
)  # typing.Self, which run-time checks of a method can't resolve
CONFIG = "config.json"
WEIGHTS = "model.safetensors"


class SaveableModel(nn.Module):
    """A module that can be saved to a run folder and loaded from one.

    Attributes:
        kind: What the model is for: ``caption``, ``translate`` or ``classify``; in the folder's config.
        Config: The dataclass of its settings.
        config: Its settings.
    """

    kind: ClassVar[str]
    Config: ClassVar[type[Any]]
    config: Any

    def save(self, folder: Path | str) -> None:
        """Write the weights, and the settings into the folder's config; what else the config says stays.

        Raises:
            ValueError: If the folder holds a model of another kind.
            OSError: If a file can't be written.
        """
        folder = Path(folder)
        kept: dict[str, Any] = {}
        if (folder / CONFIG).exists():
            kept = read_config(folder)
            _check_kind(kept, self.kind, folder)
        write_config(
            folder,
            kind=self.kind,
            model=as_json(self.config),
            data=kept.get("data", {}),
            train=kept.get("train", {}),
        )
        write_weights(folder / WEIGHTS, self.state_dict())

    @classmethod
    def load(cls: type[_Model], folder: Path | str, device: torch.device | str = "cpu") -> _Model:  # noqa: PYI019
        """Build the model a folder describes and give it the folder's weights, in eval.

        Raises:
            ValueError: If the folder holds another kind of model, or a file is damaged.
            FileNotFoundError: If there is no such folder, or a file is missing in it.
        """
        folder = Path(folder)
        config = read_config(folder)
        _check_kind(config, cls.kind, folder)
        model = cls(from_json(cls.Config, config["model"], where=str(folder / CONFIG)))
        weights = read_weights(folder / WEIGHTS)
        try:
            model.load_state_dict(weights)
        except RuntimeError as problem:
            what = " ".join(str(problem).split("\n")[1].split()) if "\n" in str(problem) else str(problem)
            raise ValueError(
                f"the weights in {str(folder / WEIGHTS)!r} don't fit the model that {CONFIG} describes: "
                f"{what}; the two files belong to different runs"
            ) from problem
        return model.to(device).eval()


def kind_of(folder: Path | str) -> str:
    """What a run folder holds: ``caption``, ``translate`` or ``classify``.

    Raises:
        FileNotFoundError: If it is no run folder.
        ValueError: If its config is damaged.
    """
    return str(read_config(Path(folder))["kind"])


def write_config(
    folder: Path | str,
    *,
    kind: str,
    model: Mapping[str, Any],
    data: Mapping[str, Any],
    train: Mapping[str, Any],
) -> None:
    """Write a run's config as a whole, all of it plain values."""
    whole = {
        "kind": kind,
        "version": _version(),
        "model": dict(model),
        "data": dict(data),
        "train": dict(train),
    }
    with atomic_write(Path(folder) / CONFIG) as beside:
        beside.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_config(folder: Path | str) -> dict[str, Any]:
    """A run's config, checked to have its kind and its model."""
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise FileNotFoundError(
            f"a run folder has a {CONFIG}, {str(folder)!r} has none; `sightline train` makes one"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise ValueError(f"{str(path)!r} is not JSON: {problem}; it was cut off or edited") from problem
    if not isinstance(config, dict) or "kind" not in config or not isinstance(config.get("model"), dict):
        raise ValueError(
            f"a run's {CONFIG} has a kind and a model, {str(path)!r} has not; is it another program's folder?"
        )
    return config


def write_weights(path: Path | str, weights: Mapping[str, torch.Tensor]) -> None:
    """Write named tensors to a safetensors file, whole or not at all."""
    from safetensors import SafetensorError  # noqa: PLC0415
    from safetensors.torch import save_file  # noqa: PLC0415

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    with atomic_write(Path(path)) as beside:
        try:
            save_file(tensors, beside)
        except SafetensorError as problem:  # its own kind of error, a full disk included
            raise OSError(str(problem)) from problem


def read_weights(path: Path | str) -> dict[str, torch.Tensor]:
    """The named tensors of a safetensors file."""
    from safetensors import SafetensorError  # noqa: PLC0415
    from safetensors.torch import load_file  # noqa: PLC0415

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"a run folder has its weights in {path.name}, {str(path.parent)!r} has none yet: the training "
            "was stopped before its first evaluation; go on with it by `sightline train` and --resume"
        )
    try:
        return load_file(path)
    except SafetensorError as problem:
        raise ValueError(
            f"the weights in {str(path)!r} are damaged: {problem}; the file has {path.stat().st_size} bytes, "
            "was it copied whole?"
        ) from problem


def _check_kind(config: Mapping[str, Any], kind: str, folder: Path) -> None:
    if config["kind"] != kind:
        raise ValueError(
            f"{str(folder)!r} holds a model of kind {config['kind']!r}, expected {kind!r}; "
            f"load it with the command or class for {config['kind']!r}"
        )


def _version() -> str:
    try:
        return metadata.version("sightline")
    except metadata.PackageNotFoundError:  # run from a bare checkout
        return "unknown"
