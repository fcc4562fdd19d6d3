"""Flags from the fields of settings: a default and its help text stand once, on the field.

    @with_fields([Group(part="train", kind=TrainConfig, title="Training")])
    def command(out: Path, given: Given) -> None:
        (train,) = settled(groups, preset, given).values()

A command so made takes its own options and a flag for every field; ``given`` holds what was given, by part.
"""

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any

import typer

from sightline.settings import from_json, help_of

__all__ = ["Given", "Group", "settled", "with_fields"]

Given = dict[str, dict[str, Any]]  # part -> field -> value

_NONE = "none"
_NOTHING: Any = object()  # stands for a None that was typed: the parameter's own None is "not typed"
_NUMBERS: dict[type, str] = {int: "INTEGER", float: "NUMBER", str: "TEXT"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Settings whose fields become flags.

    Attributes:
        part: Their name in presets and in a run's config.json.
        kind: The dataclass.
        title: Stands over them in the help.
        without: Fields that are no flags: those that are found out, and those with an option of their own.
        prefix: Stands before the names of the flags.
    """

    part: str
    kind: type[Any]
    title: str
    without: frozenset[str] = frozenset()
    prefix: str = ""

    def fields(self) -> dict[str, "dataclasses.Field[Any]"]:
        """The fields that are flags, by the name of the parameter."""
        named = {f.name: f for f in dataclasses.fields(self.kind) if f.name not in self.without}
        return {self.prefix + name: found for name, found in named.items()}


def with_fields(
    groups: Sequence[Group], start: Mapping[str, Mapping[str, Any]] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a flag for every field of some settings; it gets what was given as ``given``.

    Args:
        groups: The settings.
        start: What a command starts from where no preset is named: the help shows it for the default.

    Raises:
        ValueError: If two fields would be one flag.
    """

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function, eval_str=True).parameters
        parameters = [parameter for name, parameter in own.items() if name != "given"]
        places: dict[str, tuple[str, str]] = {}
        for group in groups:
            hints = typing.get_type_hints(group.kind)
            for name, found in group.fields().items():
                if name in places or name in own:
                    raise ValueError(f"the flag {name!r} of {group.title!r} is there twice; give it a prefix")
                places[name] = (group.part, found.name)
                default = (start or {}).get(group.part, {}).get(found.name, found.default)
                parameters.append(_parameter(name, found, hints[found.name], group.title, default))

        @wraps(function)
        def command(**values: Any) -> None:
            given: Given = {group.part: {} for group in groups}
            for name, (part, found) in places.items():
                value = values.pop(name)
                if value is not None:
                    given[part][found] = None if value is _NOTHING else value
            function(**values, given=given)

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
        return command

    return decorated


def settled(groups: Sequence[Group], *layers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Settings by part: the defaults, then each layer over the one before.

    Example:
        >>> from sightline.train.config import TrainConfig
        >>> group = Group(part="train", kind=TrainConfig, title="Training")
        >>> settled([group], {"train": {"lr": 0.1, "epochs": 3}}, {"train": {"epochs": 5}})["train"].epochs
        5
    """
    values: dict[str, dict[str, Any]] = {group.part: {} for group in groups}
    for layer in layers:
        for part, fields in layer.items():
            values.setdefault(part, {}).update(fields)
    named = {group.part: group for group in groups}
    return {part: _made(named[part], fields) for part, fields in values.items()}


def _made(group: Group, fields: Mapping[str, Any]) -> Any:
    """Settings of a group; where its flags have a prefix, a complaint says whose setting it is about."""
    try:
        return from_json(group.kind, fields, where=group.part)
    except ValueError as problem:
        if not group.prefix:
            raise
        raise ValueError(f"{group.title.lower()}: {problem}") from None


def _parameter(
    name: str, found: "dataclasses.Field[Any]", hint: Any, title: str, default: Any
) -> inspect.Parameter:
    default = default if default is not dataclasses.MISSING else None
    kinds = hint.__args__ if isinstance(hint, types.UnionType) else (hint,)
    optional = type(None) in kinds
    flag = f"--{name.replace('_', '-')}"
    if bool in kinds:
        option = typer.Option(
            f"{flag}/--no-{flag[2:]}",
            help=help_of(found),
            show_default=_shown_default(default, flag),
            rich_help_panel=title,
        )
        annotation: Any = Annotated[bool | None, option]
    else:
        kind = next(k for k in (int, float, str) if k in kinds)
        option = typer.Option(
            flag,
            help=help_of(found),
            parser=_parser(kind, optional=optional),
            metavar=_NUMBERS[kind] + ("|none" if optional else ""),
            show_default=str(default).lower() if default is None else str(default),
            rich_help_panel=title,
        )
        annotation = Annotated[Any, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _shown_default(default: bool | None, flag: str) -> str:
    return "as fits" if default is None else flag[2:] if default else f"no-{flag[2:]}"


def _parser(kind: type[Any], *, optional: bool) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        if optional and text.lower() == _NONE:
            return _NOTHING
        try:
            return kind(text)
        except ValueError:
            what = {int: "a whole number", float: "a number"}[kind] + (", or none" if optional else "")
            raise typer.BadParameter(f"{text!r} must be {what}") from None

    parse.__name__ = kind.__name__
    return parse
