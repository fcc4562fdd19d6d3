"""Settings: frozen dataclasses whose defaults, help texts and limits stand once, on their fields.

    @dataclass(frozen=True, kw_only=True, slots=True)
    class TrainConfig:
        lr: float = setting(3e-4, "The largest learning rate, reached after the warm-up.", above=0)
        schedule: str = setting("cosine", "How it falls afterwards.", choices=("constant", "cosine"))

        def __post_init__(self) -> None:
            check(self)

The command line derives its flags from the fields, and a run keeps them as JSON beside its weights.
"""

import dataclasses
import functools
import numbers
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sightline.messages import Limit, check_limits, did_you_mean, format_value, listing, shortened

__all__ = [
    "Setting",
    "as_json",
    "check",
    "check_type",
    "current_names",
    "from_json",
    "restore_settings",
    "setting",
    "setting_of",
]

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What a field says of itself besides its type and default.

    Attributes:
        help: One sentence.
        at_least, above, at_most, below: Limits of a number.
        largest: The most that a machine could ever have room or time for; told only where it is passed.
        choices: The names it may have.
        aliases: Names it had before; files that still use them are read.
        group: Under which heading the command line lists it; None: that of its config.
        advanced: Whether only the full help lists it.
        former: Of a setting that came later: what was done before, and so by the runs that don't have it.
    """

    help: str = ""
    at_least: Limit | None = None
    above: Limit | None = None
    at_most: Limit | None = None
    below: Limit | None = None
    largest: int | None = None
    choices: tuple[str, ...] | None = None
    aliases: tuple[str, ...] = ()
    group: str | None = None
    advanced: bool = False
    former: Any = None

    def check(self, name: str, value: Any) -> None:
        """Refuse a value that is not one of the choices or not within the limits; None is left alone.

        Raises:
            ValueError: With a sentence that names the setting, the rule and the value.
        """
        if value is None:
            return
        if self.choices is not None and value not in self.choices:
            raise ValueError(f"unknown {name} {value!r}, {did_you_mean(value, self.choices)}")
        limits = {
            "at_least": self.at_least,
            "above": self.above,
            "at_most": self.at_most,
            "below": self.below,
        }
        is_number = isinstance(value, numbers.Real)
        if is_number:
            if self.largest is not None and value > self.largest:
                raise ValueError(f"{name} may be at most {self.largest}, got {shortened(value)}; choose less")
            check_limits(name, value, **limits)
        elif any(limit is not None for limit in limits.values()):
            raise ValueError(f"{name} must be a number, got {format_value(value)}")


def setting(
    default: _T,
    help: str,  # noqa: A002
    *,
    at_least: Limit | None = None,
    above: Limit | None = None,
    at_most: Limit | None = None,
    below: Limit | None = None,
    largest: int | None = None,
    choices: Sequence[str] | None = None,
    aliases: tuple[str, ...] = (),
    group: str | None = None,
    advanced: bool = False,
    former: Any = None,
) -> _T:
    """A field with its default, the sentence that explains it, and its limits; see :class:`Setting`."""
    about = Setting(
        help=help,
        at_least=at_least,
        above=above,
        at_most=at_most,
        below=below,
        largest=largest,
        choices=None if choices is None else tuple(choices),
        aliases=aliases,
        group=group,
        advanced=advanced,
        former=former,
    )
    field: Any = (
        dataclasses.field(default_factory=lambda: default, metadata={"setting": about})
        if dataclasses.is_dataclass(default)
        else dataclasses.field(default=default, metadata={"setting": about})
    )
    return field


def setting_of(field: "dataclasses.Field[Any]") -> Setting:
    """What a field says of itself."""
    about: Setting = field.metadata.get("setting", Setting())
    return about


def check(config: Any) -> None:
    """Refuse values outside the limits of their fields, and numbers that are not finite.

    Raises:
        ValueError: For the first field whose value is not allowed.

    Example:
        >>> @dataclass(frozen=True)
        ... class Config:
        ...     dropout: float = setting(0.1, "Share dropped.", at_least=0, below=1)
        >>> check(Config(dropout=1.5))
        Traceback (most recent call last):
        ValueError: dropout must be at least 0 and below 1, got 1.5
    """
    hints = _hints(typing.cast("Any", type(config)))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        check_type(field.name, value, hints[field.name])
        setting_of(field).check(field.name, value)


def check_type(name: str, value: Any, hint: Any) -> None:
    """Refuse a value of another type than a field is annotated with.

    Example:
        >>> check_type("epochs", "many", int | None)
        Traceback (most recent call last):
        ValueError: epochs must be a whole number or null, got 'many'
    """
    if not _is_a(hint, value):
        raise ValueError(f"{name} must be {_type_name(hint)}, got {format_value(value)}")


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """The annotations of a dataclass, read once."""
    return typing.get_type_hints(kind)


def as_json(config: Any) -> dict[str, Any]:
    """The settings as plain values, nested ones as nested objects; tuples become lists."""
    return {field.name: _plain(getattr(config, field.name)) for field in dataclasses.fields(config)}


def from_json(kind: type[_T], values: Mapping[str, Any], *, where: str = "config.json") -> _T:
    """Settings of a kind from plain values; names that fields had before are understood.

    Raises:
        ValueError: If a name is not one of its fields, then the sentence names the nearest one, or a value is
            of another type than its field, or outside its limits.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"settings must be an object with names, got {shortened(values)} in {where}")  # noqa: TRY004
    hints = _hints(typing.cast("Any", kind))
    names = [field.name for field in dataclasses.fields(typing.cast("Any", kind))]
    values = current_names(kind, values)
    for name in values:
        if name not in names:
            raise ValueError(f"unknown setting {name!r} in {where}, {did_you_mean(name, names)}")
    made = kind(**{name: _typed(hints[name], value, f"{where}, {name}") for name, value in values.items()})
    check(made)
    return made


def current_names(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values under the names that fields have now, where some had another one before.

    Example:
        >>> @dataclass(frozen=True)
        ... class Config:
        ...     embedding_scale: float = setting(1.0, "Of words.", aliases=("volume",))
        >>> current_names(Config, {"volume": 0.5})
        {'embedding_scale': 0.5}
    """
    now = {alias: field.name for field in dataclasses.fields(kind) for alias in setting_of(field).aliases}
    return {now.get(name, name): value for name, value in values.items()}


def restore_settings(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values that a run saved, as they would be saved now: names of today, and what was done before.

    Example:
        >>> @dataclass(frozen=True)
        ... class Config:
        ...     deal: str = setting("hash", "How splits are dealt.", former="0.1")
        >>> restore_settings(Config, {})
        {'deal': '0.1'}
    """
    before = {field.name: setting_of(field).former for field in dataclasses.fields(kind)}
    return {name: value for name, value in before.items() if value is not None} | current_names(kind, values)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return as_json(value)
    return list(value) if isinstance(value, tuple) else value


def _typed(hint: Any, value: Any, where: str) -> Any:
    """A value as its field wants it: lists become tuples, and whole numbers floats where those are meant."""
    kinds = hint.__args__ if isinstance(hint, types.UnionType) else (hint,)
    for kind in kinds:
        if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
            return from_json(typing.cast("Any", kind), value, where=where)
        if typing.get_origin(kind) is tuple and isinstance(value, list | tuple):
            return tuple(_typed(kind.__args__[0], inner, where) for inner in value)
        if kind is float and isinstance(value, int) and not isinstance(value, bool) and int not in kinds:
            check_limits(where, value)
            return float(value)
        if _is_a(kind, value):
            return value
    raise ValueError(f"{where} must be {_type_name(hint)}, got {shortened(value)}")


def _is_a(kind: Any, value: Any) -> bool:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        return any(_is_a(part, value) for part in inner)
    if origin is typing.Literal:
        return value in inner
    if origin in (tuple, list):
        return isinstance(value, tuple | list) and all(_is_a(inner[0], x) for x in value)
    if origin is dict:
        return isinstance(value, dict) and all(_is_a(inner[1], x) for x in value.values())
    if kind in (int, float):
        kind = numbers.Integral if kind is int else numbers.Real
        return isinstance(value, kind) and not isinstance(value, bool)
    kind = kind if origin is None else origin
    return kind is Any or not isinstance(kind, type) or isinstance(value, kind)


_TYPE_NAMES: dict[Any, str] = {
    bool: "true or false",
    float: "a number",
    int: "a whole number",
    str: "a text",
    types.NoneType: "null",
}


def _type_name(kind: Any) -> str:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        return listing([_type_name(part) for part in inner], "or")
    if origin is typing.Literal:
        return listing([repr(name) for name in inner], "or")
    if origin in (tuple, list):
        return "a list"
    is_object = origin is dict or dataclasses.is_dataclass(kind)
    return "an object with names" if is_object else _TYPE_NAMES.get(kind, "a text")
