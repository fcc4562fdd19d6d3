"""Arguments checked at the border, by what their annotations say.

    @checked                                       # types, ranks and dtypes, as annotated
    def align(sight: Sight | Recording, heads: Sequence[int] | None = None, *, filter_width: int = 7): ...

    @checked(residual=Setting(at_least=0, at_most=1))      # and limits, said as those of settings are
    def rollout(sights: Sequence[Sight], *, residual: float = 0.5): ...

    check_fields(self)                             # the same of a dataclass, in its __post_init__

What is wrong is a TypeError, or a ValueError where the type is right, with one sentence: ``filter_width must
be a whole number, got '7'``. Annotations are read at the first call. What they can't say, how arguments fit
together, is the function's own business. Functions that are called thousands of times a second check by hand.
"""

import dataclasses
import functools
import inspect
import math
import numbers
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, overload

from sightline.argument_rules import Rule, rule_of
from sightline.messages import did_you_mean, listing, shortened

__all__ = [
    "Limit",
    "Rule",
    "check_argument",
    "check_fields",
    "checked",
    "field_rules",
    "format_value",
    "rule_of",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_LARGEST = (1 << 63) - 1  # what torch and numpy hold
_PLAIN = (str, bytes, int, float, complex, type(None), list, tuple, slice, range)


@typing.runtime_checkable
class Limit(Protocol):
    """What bounds a number: a :class:`sightline.settings.Setting`."""

    def check(self, name: str, value: Any) -> None:
        """Refuse a value outside of it."""


@overload
def checked(function: _F, /) -> _F: ...
@overload
def checked(function: None = None, /, *, own: Sequence[str] = (), **limits: Limit) -> Callable[[_F], _F]: ...
def checked(function: Any = None, /, *, own: Sequence[str] = (), **limits: Limit) -> Any:
    """Check the arguments of a function by its annotations, and by limits, before it runs.

    Args:
        function: The function.
        own: Arguments that it checks by itself, in sentences that know more.
        limits: Of numbers, by name.

    Example:
        >>> @checked
        ... def double(n: int) -> int:
        ...     return 2 * n
        >>> double("3")
        Traceback (most recent call last):
        TypeError: n must be a whole number, got '3'
    """
    if function is None:
        return functools.partial(_wrap, own=own, limits=limits)
    return _wrap(function, own=own, limits=limits)


def _wrap(function: Any, own: Sequence[str], limits: Mapping[str, Limit]) -> Any:
    names: tuple[str, ...] = ()
    rules: dict[str, Rule | None] | None = None

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        nonlocal names, rules
        if rules is None:
            names, known = _read(function)
            rules = {name: rule for name, rule in known.items() if name not in own}
        for name, value in (*zip(names, args, strict=False), *options.items()):
            rule = rules.get(name)
            if rule is not None:
                check_argument(name, value, rule, limits.get(name))
        return function(*args, **options)

    return call


def check_fields(record: Any, *, own: Sequence[str] = (), **limits: Limit) -> None:
    """Check the fields of a dataclass by their annotations, and by limits; ``own`` as in :func:`checked`."""
    kind: Any = type(record)
    for name, rule in field_rules(kind).items():
        if name not in own:
            check_argument(name, getattr(record, name), rule, limits.get(name))


def check_argument(name: str, value: Any, rule: Rule | None, limit: Limit | None = None) -> None:
    """Refuse a value that a rule or a limit excludes.

    Raises:
        TypeError: If it is of another type.
        ValueError: If it is a number that nobody can compute with, or one outside the limit.
    """
    if rule is not None and not rule.fits(value):
        remedy = (
            f"; torch.as_tensor({name}) makes one"
            if rule.words.endswith("tensor") and _is_rows(value)
            else ""
        )
        if isinstance(value, str) and rule.choices:
            raise ValueError(
                f"unknown {name} {shortened(value)}, {did_you_mean(value, map(str, rule.choices))}"
            )
        raise TypeError(f"{name} must be {rule.words}, got {format_value(value)}{remedy}")
    if rule is not None and rule.names and value is not None:
        _check_named(name, value, rule.names)
    if rule is None or value is None or isinstance(value, bool) or not isinstance(value, numbers.Real):
        return
    if isinstance(value, numbers.Integral) and abs(int(value)) > _LARGEST:
        raise ValueError(f"{name} must be a number of 64 bits, got {shortened(int(value))}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {float(value)}")
    if limit is not None:
        limit.check(name, value)


def _check_named(name: str, value: Any, what: str) -> None:
    """Refuse a path that no system has, and a device that is not there."""
    if what == "path":
        _check_path(name, str(value))
    if what == "device":
        _check_device(value)


def _check_path(name: str, path: str) -> None:
    if "\0" in path:
        raise ValueError(f"{name} must be a path, which holds no NUL, got {format_value(path)}")
    try:
        os.fsencode(path)
    except UnicodeEncodeError as problem:
        raise ValueError(
            f"{name} must be a path that the system can write, {format_value(path)} has half a letter at "
            f"{problem.start}; leave it out"
        ) from None


def _check_device(device: Any) -> None:
    torch = sys.modules["torch"]
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as problem:
        if str(device).lower().startswith("gpu"):
            meant = f"cuda{str(device)[3:]}"
            raise ValueError(f"there is no device {str(device)!r} here; did you mean {meant!r}?") from None
        reason = str(problem).partition("\n")[0].partition("Expected one of")[0]
        raise ValueError(
            f"there is no device {shortened(str(device))} here{reason and f' ({reason})'}; 'cpu' is there"
        ) from None


def format_value(value: Any) -> str:
    """A value as a sentence shows it: plain ones as Python writes them, tensors by shape, others by type."""
    shape = getattr(value, "shape", None)
    if shape is not None and hasattr(value, "dtype") and not isinstance(value, type):
        sparse = "sparse " if getattr(value, "is_sparse", False) else ""
        return f"a {sparse}{type(value).__name__} of shape {tuple(shape)} and {value.dtype}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType):
        return f"the function {value.__name__}"
    if isinstance(value, _PLAIN):
        return (
            shortened(_safe(value))
            if not isinstance(value, list | tuple) or _is_plain(value)
            else _described(value)
        )
    return f"a {type(value).__name__}"


def _described(value: "list[Any] | tuple[Any, ...]") -> str:
    return f"a {type(value).__name__} of {listing(sorted({type(x).__name__ for x in value}))}"


def _is_plain(value: Iterable[Any]) -> bool:
    return all(isinstance(x, str | int | float | type(None)) for x in value)


def _safe(value: Any) -> Any:
    return (
        value.encode("unicode_escape").decode()
        if isinstance(value, str) and not value.isprintable()
        else value
    )


def _is_rows(value: object) -> bool:
    return isinstance(value, list | tuple) or type(value).__module__ == "numpy"


def _read(function: Any) -> tuple[tuple[str, ...], dict[str, Rule | None]]:
    """The names of a function's positional parameters, and the rule of each parameter."""
    target = inspect.unwrap(function)
    hints = _hints(target)
    parameters = inspect.signature(target).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    single = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return tuple(names), {name: rule_of(hints[name]) for name in single if name in hints}


@functools.cache
def field_rules(kind: type) -> dict[str, Rule | None]:
    """The rule of each field of a dataclass."""
    hints = _hints(kind)
    return {
        field.name: rule_of(hints.get(field.name, Any))
        for field in dataclasses.fields(typing.cast("Any", kind))
    }


def _hints(target: Any) -> dict[str, Any]:
    """Annotations, those that name what is only imported for type checkers left out."""
    try:
        return typing.get_type_hints(target)
    except NameError:
        found = inspect.get_annotations(target)
        return {name: hint for name, hint in found.items() if not isinstance(hint, str)}
