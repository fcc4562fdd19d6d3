"""Options from the fields of dataclasses: a default and its help text stand once, on the field.

    fields = Fields()
    fields.add_part(part, shown)                  # a flag for every field of a part of a task
    command = fields.on(function)                 # function(..., field_values={"train": {"epochs": 3}})

Only what was given is handed on, so that a preset or a saved run can stand below it.
"""

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Annotated, Any

import typer

from sightline.messages import flag
from sightline.settings import setting_of
from sightline.tasks.task import Part

__all__ = ["SWITCHES", "FieldValues", "Fields"]

SWITCHES = "switches"  # where optional parts that were asked for stand among the values

FieldValues = dict[str, dict[str, Any]]  # part -> field -> value

_NONE = "none"
_NOTHING: Any = object()  # stands for a None that was typed: the parameter's own None is "not given"
_TYPES: dict[type, str] = {int: "INTEGER", float: "NUMBER", str: "TEXT"}


class Fields:
    """Flags for fields, and where each value belongs."""

    def __init__(self) -> None:
        self._parameters: list[inspect.Parameter] = []
        self._places: dict[str, tuple[str, str]] = {}

    def add_part(
        self, part: Part, start: Mapping[str, Any] | None = None, *, without: frozenset[str] = frozenset()
    ) -> None:
        """A flag for every field of a part, but those that are no flags.

        Args:
            part: The settings.
            start: Values that stand where no preset is named: the help shows them as defaults.
            without: Fields that are no flags.

        Raises:
            ValueError: If two fields would be one flag.
        """
        self.add(part.name, part.config, part.title, without=without, prefix=part.prefix, start=start)

    def add(
        self,
        name: str,
        config: type[Any],
        title: str,
        *,
        without: frozenset[str] = frozenset(),
        prefix: str = "",
        start: Mapping[str, Any] | None = None,
    ) -> None:
        """A flag for every field of a dataclass; one that is there already, with the same name, is shared."""
        hints = typing.get_type_hints(config)
        for field in dataclasses.fields(config):
            if field.name in without:
                continue
            parameter = prefix + field.name
            if parameter in self._places:
                raise ValueError(f"the flag {flag(parameter)} of {title!r} is there twice; give it a prefix")
            self._places[parameter] = (name, field.name)
            default = (start or {}).get(field.name, field.default)
            self._parameters.append(_parameter(parameter, field, hints[field.name], title, default))

    def add_switch(self, part: Part) -> None:
        """The flag that asks for an optional part; ``field_values`` has it under ``switches``."""
        assert part.switch is not None  # noqa: S101 - only an optional part has one
        self._places[part.switch] = (SWITCHES, part.name)
        option = typer.Option(
            flag(part.switch), help=part.switch_help, rich_help_panel=part.title, metavar=""
        )
        annotation = Annotated[bool | None, option]
        parameter = inspect.Parameter(
            part.switch, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
        )
        self._parameters.append(parameter)

    def on(
        self,
        function: Callable[..., None],
        *,
        panels: Sequence[str] = (),
        without: frozenset[str] = frozenset(),
    ) -> Callable[..., None]:
        """The function as a command with these flags besides its own parameters; it gets ``field_values``.

        Args:
            function: The command.
            panels: Headings in the order of the help. Default: as they come.
            without: Parameters of the function that are no options here: they keep their defaults.
        """
        own = inspect.signature(function, eval_str=True).parameters
        taken = [p for name, p in own.items() if name not in without | {"field_values"}]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in taken] + self._parameters
        if panels:
            parameters.sort(key=lambda parameter: panels.index(_panel(parameter)))
        for name in self._places:
            if name in own:
                raise ValueError(f"the flag {flag(name)} is there twice; give its part a prefix")

        @wraps(function)
        def command(**values: Any) -> None:
            chosen: FieldValues = {}
            for parameter, (part, field) in self._places.items():
                value = values.pop(parameter)
                if value is not None:
                    chosen.setdefault(part, {})[field] = None if value is _NOTHING else value
            function(**values, field_values=chosen)

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
        return command


def _panel(parameter: inspect.Parameter) -> str:
    """The heading that a parameter stands under."""
    return str(parameter.annotation.__metadata__[0].rich_help_panel)


def _parameter(
    name: str, field: "dataclasses.Field[Any]", hint: Any, title: str, default: Any
) -> inspect.Parameter:
    about = setting_of(field)
    default = default if default is not dataclasses.MISSING else None
    kinds = hint.__args__ if isinstance(hint, types.UnionType) else (hint,)
    optional = type(None) in kinds
    names = [flag(name), *map(flag, about.aliases)]
    panel = about.group or title
    if bool in kinds:
        option = typer.Option(
            *(f"{one}/--no-{one[2:]}" for one in names),
            help=_with_default(about.help, _shown_default(default, names[0])),
            show_default=False,
            rich_help_panel=panel,
            metavar="",
            hidden=about.advanced,
        )
        annotation: Any = Annotated[bool | None, option]
    else:
        kind = next(k for k in (int, float, str) if k in kinds)
        option = typer.Option(
            *names,
            help=_with_default(about.help, "none" if default is None else str(default)),
            parser=_parser(kind, optional=optional),
            metavar=_TYPES[kind] + ("|none" if optional else ""),
            show_default=False,
            rich_help_panel=panel,
            hidden=about.advanced,
        )
        annotation = Annotated[Any, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _with_default(text: str, default: str) -> str:
    """A help text that ends in its default: on the same line, where there is room.

    Example:
        >>> _with_default("Width of the model.", "512")
        'Width of the model (default: 512).'
    """
    return f"{text.removesuffix('.')} (default: {default})."


def _shown_default(default: bool | None, name: str) -> str:
    return "as fits" if default is None else name[2:] if default else f"no-{name[2:]}"


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
