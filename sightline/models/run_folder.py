"""A run folder: ``config.json`` says what a model is, ``model.safetensors`` holds its weights.

    model.save(folder)                     # either file is written whole or not at all
    model = Captioner.load(folder)         # nothing in the folder is ever executed

``config.json`` is one object with ``kind``, ``version``, ``model``, ``data`` and ``train``.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

from sightline.data.files import atomic_write
from sightline.messages import check_bool, logger, shortened
from sightline.models.manifest import FORCE_REMEDY, check_unchanged, drop_manifest, write_manifest
from sightline.models.weights_file import (
    check_bounds,
    check_finite,
    check_shapes,
    read_shapes,
    read_weights,
    write_weights,
)
from sightline.settings import as_json, from_json
from sightline.shapes import check_device
from sightline.untrusted import check_memory, check_unicode, need, read_json, to_json

__all__ = ["CONFIG", "WEIGHTS", "SaveableModel", "kind_of", "note_version", "read_config", "write_config"]

_Model = TypeVar(
    "_Model", bound="SaveableModel"
)  # typing.Self, which run-time checks of a method can't resolve
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
_MOST_CONFIG = 1 << 24


class SaveableModel(nn.Module):
    """A module that can be saved to a run folder and loaded from one.

    Attributes:
        kind: What the model is for: ``caption``, ``translate`` or ``classify``; in the folder's config.
        Config: The dataclass of its settings.
        config: Its settings.

    Example:
        >>> from tempfile import mkdtemp
        >>> sizes = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 8}
        >>> config = sl.models.VisionTransformerConfig(image_size=8, patch=4, **sizes)
        >>> folder = mkdtemp()
        >>> sl.models.VisionTransformer(config).save(folder)
        >>> sl.models.VisionTransformer.load(folder).config == config
        True
    """

    kind: ClassVar[str]
    Config: ClassVar[type[Any]]
    config: Any

    def save(self, folder: Path | str) -> None:
        """Write the weights, and the settings into the folder's config; what else the config says stays.

        Raises:
            ValueError: If the folder holds a model of another kind, or its name is no UTF-8.
            OSError: If a file can't be written.
        """
        folder = Path(folder)
        check_unicode(folder, "a run")
        need("safetensors", "saving a model", "look")
        kept: dict[str, Any] = {}
        if (folder / CONFIG).exists():
            kept = read_config(folder)
            _check_kind(kept, self.kind, folder)
        drop_manifest(folder)
        write_config(
            folder,
            kind=self.kind,
            model=as_json(self.config),
            data=kept.get("data", {}),
            train=kept.get("train", {}),
        )
        write_weights(folder / WEIGHTS, self.state_dict())
        write_manifest(folder)

    @classmethod
    def load(  # noqa: PYI019
        cls: type[_Model], folder: Path | str, device: torch.device | str = "cpu", *, force: bool = False
    ) -> _Model:
        """Build the model a folder describes and give it the folder's weights, in eval.

        The config is held against the names and shapes in the weights' header before anything is made.

        Args:
            folder: The run folder.
            device: Where the model should be.
            force: Load it also where the files are not those that were written, or weights are no numbers.

        Raises:
            ValueError: If the folder holds another kind of model, or a file is damaged.
            FileNotFoundError: If there is no such folder, or a file is missing in it.
        """
        check_device(device)
        check_bool("force", force)
        folder = Path(folder)
        config = read_config(folder)
        _check_kind(config, cls.kind, folder)
        settings = from_json(cls.Config, config["model"], where=str(folder / CONFIG))
        path = folder / WEIGHTS
        shapes = read_shapes(path)
        check_unchanged(folder, remedy=FORCE_REMEDY, force=force)
        check_bounds(config["model"], shapes, path)
        outline = _outline(cls, settings)
        if outline is not None:
            check_shapes(outline, shapes, path)
        model = cls.build(settings)
        check_shapes(model, shapes, path)
        weights = read_weights(path)
        check_finite(weights, path, force=force)
        model.load_state_dict(weights)
        return model.to(device).eval()

    @classmethod
    def build(cls: type[_Model], config: Any) -> _Model:  # noqa: PYI019
        """The model of a config, if there is memory for it.

        Raises:
            ValueError: If it needs more memory than is free.
        """
        outline = _outline(cls, config)
        if outline is not None:
            tensors = [*outline.parameters(), *outline.buffers()]
            count = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
            check_memory(count, "the model", "make it narrower or shallower, or free some")
        return cls(config)


def _outline(cls: type[_Model], config: Any) -> _Model | None:
    """The model on torch's meta device, where tensors have shapes and no memory; None if it can't be there.

    Models of our own can; one of yours may ask for values while it is made.
    """
    try:
        with torch.device("meta"):
            return cls(config)
    except (NotImplementedError, RuntimeError):
        return None


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
        beside.write_text(to_json(whole, indent=2) + "\n", encoding="utf-8")


def read_config(folder: Path | str) -> dict[str, Any]:
    """A run's config, checked to have its kind and its model."""
    path = Path(folder) / CONFIG
    if not path.exists():
        raise FileNotFoundError(
            f"a run folder has a {CONFIG}, {str(folder)!r} has none; `sightline train` makes one"
        )
    config = read_json(path, at_most=_MOST_CONFIG)
    if not (
        isinstance(config, dict)
        and isinstance(config.get("kind"), str)
        and isinstance(config.get("model"), dict)
    ):
        raise ValueError(  # noqa: TRY004 - a file of a user
            f"a run's {CONFIG} has a kind and a model, {str(path)!r} has not; is it another program's folder?"
        )
    for part in ("data", "train"):
        if not isinstance(config.get(part, {}), dict):
            raise ValueError(  # noqa: TRY004 - a file of a user
                f"the {part} of a run's {CONFIG} is an object with names, got {shortened(config[part])} in "
                f"{str(path)!r}; it was edited"
            )
    return config


def note_version(config: Mapping[str, Any], folder: Path) -> None:
    """Say so where a run was written by a later version than this: it may mean what this one can't know."""
    written, own = (_numbers(str(version)) for version in (config.get("version", ""), _version()))
    if written and own and written > own:
        logger.warning(
            "%r was written by sightline %s, this is %s: if it can't be opened or answers strangely, "
            "pip install --upgrade sightline",
            str(folder),
            str(config["version"])[:40],
            _version(),
        )


def _check_kind(config: Mapping[str, Any], kind: str, folder: Path) -> None:
    if config["kind"] != kind:
        raise ValueError(
            f"{str(folder)!r} holds a model of kind {config['kind']!r}, expected {kind!r}; "
            f"load it with the command or class for {config['kind']!r}"
        )


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with.

    Example:
        >>> _numbers("1.20.3rc1"), _numbers("unknown")
        ((1, 20, 3), ())
    """
    found = re.match(r"\d{1,9}(?:\.\d{1,9}){0,9}", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _version() -> str:
    """Of the package itself, for a bare checkout has no other; rooms import only to their left."""
    return str(sys.modules["sightline"].__version__)
