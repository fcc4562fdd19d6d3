"""Arguments checked at the border, by what their annotations say.

    @checked                                       # types, ranks and dtypes, as annotated
    def align(sight: Sight | Seen, heads: Sequence[int] | None = None, *, filter_width: int = 7): ...

    @checked(residual=Setting(at_least=0, at_most=1))      # and limits, said as those of settings are
    def rollout(sights: Sequence[Sight], *, residual: float = 0.5): ...

    check_fields(self)                             # the same of a dataclass, in its __post_init__

What is wrong is a TypeError, or a ValueError where the type is right, with one sentence: ``filter_width must
be a whole number, got '7'``. Annotations are read at the first call. What they can't say, how arguments fit
together, is the function's own business. Functions that are called thousands of times a second check by hand.
"""

import collections.abc
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
from pathlib import Path, PurePath
from typing import Any, NamedTuple, Protocol, TypeVar, overload

from sightline.messages import did_you_mean, listing, shortened

__all__ = [
    "Limit",
    "Rule",
    "check_argument",
    "check_fields",
    "checked",
    "field_rules",
    "rule_of",
    "shown_value",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_LARGEST = (1 << 63) - 1  # what torch and numpy hold
_KINDS = {"Float": "a float", "Int": "an integer", "Bool": "a boolean", "Shaped": "a"}
_PLAIN = (str, bytes, int, float, complex, type(None), list, tuple, slice, range)


@typing.runtime_checkable
class Limit(Protocol):
    """What bounds a number: a :class:`sightline.settings.Setting`."""

    def check(self, name: str, value: Any) -> None:
        """Refuse a value outside of it."""


class Rule(NamedTuple):
    """What an argument may be.

    Attributes:
        words: As a sentence says it: "a whole number".
        fits: Whether a value is that.
        choices: The names it may have, where it is one of some.
        names: What a text names, where that is to be checked: "device" or "path".
    """

    words: str
    fits: Callable[[Any], bool]
    choices: tuple[Any, ...] = ()
    names: str = ""


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
            check_argument(name, value, rules.get(name), limits.get(name))
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
        raise TypeError(f"{name} must be {rule.words}, got {shown_value(value)}{remedy}")
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
        raise ValueError(f"{name} must be a path, which holds no NUL, got {shown_value(path)}")
    try:
        os.fsencode(path)
    except UnicodeEncodeError as problem:
        raise ValueError(
            f"{name} must be a path that the system can write, {shown_value(path)} has half a letter at "
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


def shown_value(value: Any) -> str:
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


def rule_of(hint: Any) -> Rule | None:
    """What an annotation lets through; None: anything.

    Example:
        >>> rule_of(int | tuple[int, int] | None).words
        'a whole number, a pair of whole numbers or None'
    """
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _any_of([rule_of(part) for part in typing.get_args(hint)])
    if origin is typing.Literal:
        names = typing.get_args(hint)
        return Rule(" or ".join(map(repr, names)), lambda x: isinstance(x, str | bool) and x in names, names)
    if origin is typing.Annotated:
        first, about = hint.__origin__, hint.__metadata__[0]
        return _tensor_rule(*about) if isinstance(about, tuple) else rule_of(first)
    if hasattr(hint, "dim_str") and hasattr(hint, "dtypes"):  # jaxtyping's
        return _tensor_rule(_kind_name(hint), hint.dim_str)
    if origin is not None:
        return _container_rule(origin, typing.get_args(hint))
    return _plain_rule(hint)


def _any_of(rules: Sequence[Rule | None]) -> Rule | None:
    known = [rule for rule in rules if rule is not None]
    if len(known) < len(rules):
        return None
    words = list(dict.fromkeys(rule.words for rule in known))
    if "a number" in words:
        words = [word for word in words if word != "a whole number"]
    choices = tuple(name for rule in known for name in rule.choices)
    names = next((rule.names for rule in known if rule.names), "")
    return Rule(listing(words, "or"), lambda x: any(rule.fits(x) for rule in known), choices, names)


def _plain_rule(hint: Any) -> Rule | None:
    if hint in _RULES:
        return _RULES[hint]
    if not isinstance(hint, type) or hint is object:
        return None
    if hint.__module__.partition(".")[0] == "torch" and hint.__name__ in _TORCH_RULES:
        return _TORCH_RULES[hint.__name__]
    if getattr(hint, "_is_protocol", False) and not getattr(hint, "_is_runtime_protocol", False):
        return None
    return Rule(
        f"{'an' if hint.__name__[0] in 'AEIOU' else 'a'} {hint.__name__}", lambda x: isinstance(x, hint)
    )


def _container_rule(origin: Any, inner: tuple[Any, ...]) -> Rule | None:
    if origin in _GENERIC or not isinstance(origin, type):
        return _GENERIC.get(origin)
    if issubclass(origin, Mapping):
        keys, values = (*map(rule_of, inner), None, None)[:2]
        each = _words_of(values)
        return Rule(
            f"a dict{each}", lambda x: isinstance(x, origin) and _all(keys, x) and _all(values, x.values())
        )
    if origin is tuple and inner and inner[-1] is not ...:
        rules = [rule_of(part) for part in inner]
        what = {2: "a pair", 3: "a triple"}.get(len(inner), f"{len(inner)} values")
        same = rules[0] if all(part == inner[0] for part in inner) else None
        return Rule(
            f"{what}{_words_of(same)}",
            lambda x: _is_several(x) and len(x) == len(rules) and all(map(_fits, rules, x)),
        )
    if issubclass(origin, Iterable):
        element = rule_of(inner[0]) if inner else None
        is_any = origin in (collections.abc.Iterable, collections.abc.Iterator, collections.abc.Collection)
        several = _is_iterable if is_any else _is_several
        return Rule(f"a list{_words_of(element)}", lambda x: several(x) and _all(element, x))
    return Rule(f"a {origin.__name__}", lambda x: isinstance(x, origin))


def _words_of(rule: Rule | None) -> str:
    """From "a whole number" to " of whole numbers"."""
    if rule is None:
        return ""
    article, _, rest = rule.words.partition(" ")
    if article not in {"a", "an"} or " or " in rest:
        return f", each {rule.words}"
    noun, of, more = rest.partition(" of ")
    return f" of {noun}s{of}{more}"


def _fits(rule: Rule | None, value: Any) -> bool:
    return rule is None or rule.fits(value)


def _all(rule: Rule | None, values: Iterable[Any]) -> bool:
    return rule is None or hasattr(values, "__next__") or all(map(rule.fits, values))


def _is_iterable(value: Any) -> bool:
    """Whether it can be gone through, once at least, and is neither a text nor a table with names."""
    if isinstance(value, str | bytes | Mapping | PurePath | type) or _is_tensor(value):
        return False
    return hasattr(value, "__iter__") and getattr(value, "ndim", 1) > 0


def _is_several(value: Any) -> bool:
    """Whether it is a list of things: neither a text nor a table with names, and not gone once it is read."""
    if isinstance(value, str | bytes | Mapping | PurePath | type) or _is_tensor(value):
        return False
    return hasattr(value, "__getitem__") and hasattr(value, "__len__") and getattr(value, "ndim", 1) > 0


def _is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _kind_name(hint: Any) -> str:
    """Whose dtypes a jaxtyping annotation has."""
    dtypes = hint.dtypes if isinstance(hint.dtypes, Iterable) else ()
    first = next((str(x) for x in dtypes), "")
    return (
        "Bool"
        if first.startswith("bool")
        else "Float"
        if "float" in first
        else "Int"
        if "int" in first
        else "Shaped"
    )


def _tensor_rule(kind: str, dims: str) -> Rule:
    """A tensor of some dtypes with the dimensions that its annotation names."""
    letters = dims.split()
    is_open = any(x == "..." or x.startswith("*") for x in letters)
    least = sum(not (x == "..." or x.startswith("*")) for x in letters)

    def fits(x: Any) -> bool:
        if not _is_tensor(x):
            return False
        known = {"Float": x.is_floating_point(), "Bool": str(x.dtype) == "torch.bool"}
        known["Int"] = not (x.is_floating_point() or x.is_complex() or known["Bool"])
        if x.is_sparse or (kind == "Float" and x.element_size() == 1):  # float8 is stored, not computed with
            return False
        return known.get(kind, True) and (x.dim() >= least if is_open else x.dim() == least)

    shape = "" if not least else f" of shape ({', '.join(x.lstrip('*#') for x in letters)})"
    return Rule(f"{_KINDS.get(kind, 'a')} tensor{shape}", fits)


def _is_whole(x: Any) -> bool:
    return isinstance(x, numbers.Integral) and not _is_flag(x)


def _is_number(x: Any) -> bool:
    return isinstance(x, numbers.Real) and not _is_flag(x)


def _is_flag(x: Any) -> bool:
    return isinstance(x, bool) or type(x).__name__ in {"bool_", "bool"}


def _is_path(x: Any) -> bool:
    return isinstance(x, os.PathLike)


def _is_device(x: Any) -> bool:
    return type(x).__module__ == "torch" and type(x).__name__ == "device"


_RULES: dict[Any, Rule | None] = {
    Any: None,
    None: Rule("None", lambda x: x is None),
    type(None): Rule("None", lambda x: x is None),
    bool: Rule("True or False", _is_flag),
    int: Rule("a whole number", _is_whole),
    float: Rule("a number", _is_number),
    str: Rule("a text", lambda x: isinstance(x, str)),
    bytes: Rule("bytes", lambda x: isinstance(x, bytes)),
    Path: Rule("a path", _is_path, names="path"),
    slice: Rule("a slice", lambda x: isinstance(x, slice)),
    range: Rule("a range", lambda x: isinstance(x, range)),
}
_GENERIC: dict[Any, Rule | None] = {
    collections.abc.Callable: Rule("a function", callable),
    type: Rule("a class", lambda x: isinstance(x, type)),
}
_TORCH_RULES = {
    "Tensor": Rule("a tensor", _is_tensor),
    "device": Rule("a device", _is_device, names="device"),
}
