"""The models: captioner, translator, recurrent translator, vision transformer.

A name is imported when it is first asked for, so that ``import sightline`` stays light.
"""

import importlib
from typing import Any

_HOMES = {
    "Captioner": "captioner",
    "CaptionerConfig": "captioner",
    "RecurrentConfig": "rnn",
    "RecurrentTranslator": "rnn",
    "Translator": "translator",
    "TranslatorConfig": "translator",
    "VisionTransformer": "vit",
    "VisionTransformerConfig": "vit",
}
__all__ = [*_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"sightline.models has no {name!r}; it has {', '.join(_HOMES)}")
    return getattr(importlib.import_module(f"sightline.models.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
