"""What an annotation lets through, in words and as a test: the rules that arguments are checked by."""

import collections.abc
import numbers
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from sightline.messages import listing

__all__ = ["Rule", "rule_of"]

_KINDS = {"Float": "a float", "Int": "an integer", "Bool": "a boolean", "Shaped": "a"}


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
