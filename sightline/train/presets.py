"""Named settings: what to begin with, and runs whose outcome is known.

A preset gives some fields of some parts; flags stand over it. They are kept as ``PRESETS`` in files of their
own, one or more a kind of model; ``default`` is taken where none is named.
"""

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

from sightline.shapes import did_you_mean

__all__ = ["Preset", "preset", "presets"]

Preset = Mapping[str, Mapping[str, Any]]  # part -> field -> value

_FILES = {
    "caption": ("presets_photos", "presets_caption", "presets_scenes"),
    "translate": ("presets_translate",),
    "classify": ("presets_classify",),
}


def presets(kind: str) -> Mapping[str, Preset]:
    """All presets of a kind of model, by name."""
    found: dict[str, Preset] = {"default": {}}
    for name in _FILES.get(kind, ()):
        module = f"sightline.train.{name}"
        if importlib.util.find_spec(module) is not None:
            found.update(importlib.import_module(module).PRESETS)
    return found


def preset(kind: str, name: str | None) -> Preset:
    """A preset by its name; None is ``default``.

    Raises:
        ValueError: If there is none of this name.

    Example:
        >>> preset("translate", "huge")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: unknown preset 'huge' for translate, expected one of ...
    """
    known = presets(kind)
    chosen = "default" if name is None else name
    if chosen not in known:
        raise ValueError(f"unknown preset {chosen!r} for {kind}, {did_you_mean(chosen, known)}")
    return known[chosen]
