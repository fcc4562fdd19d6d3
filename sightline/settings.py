"""Settings: frozen dataclasses whose defaults and help texts stand once, on their fields.

    @dataclass(frozen=True, kw_only=True, slots=True)
    class TrainConfig:
        lr: float = setting(3e-4, "The largest learning rate, reached after the warm-up.")

The command line derives its flags from the fields, and a run keeps them as JSON beside its weights.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from sightline.shapes import did_you_mean

__all__ = ["as_json", "from_json", "help_of", "setting"]

_T = TypeVar("_T")


def setting(default: _T, help: str) -> _T:  # noqa: A002
    """A field with its default and the sentence that explains it."""
    field: Any = (
        dataclasses.field(default_factory=lambda: default, metadata={"help": help})
        if dataclasses.is_dataclass(default)
        else dataclasses.field(default=default, metadata={"help": help})
    )
    return field


def help_of(field: "dataclasses.Field[Any]") -> str:
    """What a field's setting is for."""
    return str(field.metadata.get("help", ""))


def as_json(config: Any) -> dict[str, Any]:
    """The settings as plain values, nested ones as nested objects; tuples become lists."""
    return {field.name: _plain(getattr(config, field.name)) for field in dataclasses.fields(config)}


def from_json(kind: type[_T], values: Mapping[str, Any], *, where: str = "config.json") -> _T:
    """Settings of a kind from plain values.

    Raises:
        ValueError: If a name is not one of its fields; the sentence names the nearest one.
    """
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(typing.cast("Any", kind))]
    for name in values:
        if name not in names:
            raise ValueError(f"unknown setting {name!r} in {where}, {did_you_mean(name, names)}")
    return kind(**{name: _typed(hints[name], value, f"{where}, {name}") for name, value in values.items()})


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return as_json(value)
    return list(value) if isinstance(value, tuple) else value


def _typed(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return from_json(typing.cast("Any", hint), value, where=where)
    origins = hint.__args__ if isinstance(hint, types.UnionType) else (hint,)
    if isinstance(value, list) and any(typing.get_origin(x) is tuple for x in origins):
        return tuple(value)
    if isinstance(value, int) and not isinstance(value, bool) and float in origins and int not in origins:
        return float(value)
    return value
