"""Named settings: what to begin with, and runs whose outcome is known.

A preset gives some fields of some parts; flags stand over it. Each kind of model may keep its own in
``presets_KIND.py`` as ``PRESETS``; ``default`` is taken where none is named.
"""

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

from sightline.shapes import did_you_mean

__all__ = ["Preset", "preset", "presets"]

Preset = Mapping[str, Mapping[str, Any]]  # part -> field -> value


def presets(kind: str) -> Mapping[str, Preset]:
    """All presets of a kind of model, by name."""
    name = f"sightline.train.presets_{kind}"
    if importlib.util.find_spec(name) is None:
        return {"default": {}}
    return {"default": {}, **importlib.import_module(name).PRESETS}


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
