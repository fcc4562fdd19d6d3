"""Groups of keys: what ``sight.mass`` sums over."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sightline.look.key_groups import KeyGroups
from sightline.messages import check_integer, format_value
from sightline.shapes import Bool, check_values, did_you_mean, is_tensor
from sightline.untrusted import check_memory

__all__ = ["Groups", "KeyGroups", "is_integer", "is_named", "key_index", "read_groups"]

_EXAMPLE = "such as [slice(0, 576), [580, 581]], or ids (S,) with one whole number per key"

_MANY = 1 << 16  # groups, where there are fewer keys
_LARGE = 1 << 24  # marks of members; with more, planning is little beside the pass itself

Keys = slice | range | int | Sequence[int] | Tensor
Groups = Tensor | npt.NDArray[Any] | Mapping[str, Keys | str] | list[Any] | tuple[Any, ...]


# Found by what is in them, not by whose they are.
_RECENT: deque[KeyGroups] = deque(maxlen=4)
_RECENT_LISTS: deque[tuple[Any, KeyGroups]] = deque(maxlen=4)


def read_groups(
    groups: Groups | KeyGroups,
    s: int,
    device: torch.device | str = "cpu",
    tokens: Sequence[Sequence[str]] = (),
) -> KeyGroups:
    """Read groups of S keys.

    Args:
        groups: Ids ``(S,)``, or ``(B, S)`` where items differ: a key with id g belongs to group g, one with
            -1 to none. Or a list, or a dict with names, of groups: each a slice, a range, indices, or the
            name of tokens: ``"image"`` is all of ``image[0]``, ``image[1]``, ...
        s: How many keys there are.
        device: Where to put the answer.
        tokens: Names of the keys, for each item of the batch, or for all.

    Example:
        >>> read_groups([slice(0, 3), [2, 4]], 6)
        KeyGroups: 2 groups of 6 keys; 1 in more than one, [2]; 2 in none, [3, 5]
        >>> read_groups([0, 0, 1, -1], 4).members.long().T
        tensor([[1, 1, 0, 0],
                [0, 0, 1, 0]])
    """
    check_integer("s", s, at_least=0)
    device = torch.empty(0, device=device).device  # "cuda" is "cuda:0"
    if isinstance(groups, KeyGroups):
        if groups.s != s:
            raise ValueError(
                f"these groups are of S={groups.s} keys, got a sight of S={s}; read them "
                f"again with read_groups(groups, {s})"
            )
        return (
            groups
            if groups.device == device
            else KeyGroups(marks=groups.marks, names=groups.names, device=device)
        )
    if isinstance(groups, Mapping):
        names, listed = tuple(map(str, groups)), list(groups.values())
    elif isinstance(groups, Tensor | np.ndarray) or _is_ids(groups, s):
        if isinstance(groups, np.ndarray) and groups.dtype.kind not in "biuf":
            raise TypeError(f"ids must be whole numbers, {_EXAMPLE}, got an array of {groups.dtype}")
        return _read_ids(torch.as_tensor(groups), s, device)
    elif isinstance(groups, list | tuple):
        names, listed = tuple(map(str, range(len(groups)))), list(groups)
    else:
        raise TypeError(f"groups are a list of groups, {_EXAMPLE}, got {type(groups).__name__}")
    if listed and all(map(is_integer, listed)):
        raise ValueError(
            f"ids must be one whole number per key, S={s} of them, got {len(listed)}; a list of groups is "
            f"{_EXAMPLE}"
        )
    if any(isinstance(keys, str) for keys in listed):
        if not isinstance(groups, Mapping):
            names = tuple(x if isinstance(x, str) else name for x, name in zip(listed, names, strict=True))
        each = [_named_members(listed, names, s, text) for text in _checked_tokens(tokens, listed)]
        members = each[0] if len(each) == 1 else torch.stack(each)
        _check_found(members, listed, tokens)
        return KeyGroups(marks=members, names=names, device=device)
    return _read_lists(listed, names, s, device)


def _read_lists(listed: list[Any], names: tuple[str, ...], s: int, device: torch.device) -> KeyGroups:
    """Groups by their places; the same as before if they were asked for lately."""
    parts = [_as_key(keys) for keys in listed]
    key = None if any(part is None for part in parts) else (names, parts, s, device)
    for other, known in tuple(_RECENT_LISTS) if key is not None else ():
        if other == key:
            return known
    groups = KeyGroups(marks=_named_members(listed, names, s, ()), names=names, device=device)
    if key is not None and groups.n_marks <= _LARGE:
        _RECENT_LISTS.append((key, groups))
    return groups


def _named_members(
    listed: Sequence[Any], names: Sequence[str], s: int, text: Sequence[str]
) -> Bool[Tensor, "S G"]:
    """Which keys belong to which group, by their places or by the names of their tokens."""
    check_memory(len(listed) * s, f"{len(listed)} groups of {s} keys")
    members = torch.zeros(len(listed), s, dtype=torch.bool)
    for keys, name, row in zip(listed, names, members.numpy(), strict=True):
        if isinstance(keys, slice):
            check_slice(keys, f"group {name}")
            row[keys] = True
            continue
        if isinstance(keys, str):
            keys = [i for i, token in enumerate(text[:s]) if is_named(token, keys)]  # noqa: PLW2901
        row[key_index(keys, s, f"group {name}")] = True
    return members.T


def _checked_tokens(tokens: Sequence[Sequence[str]], listed: Sequence[Any]) -> Sequence[Sequence[str]]:
    if not tokens:
        name = next(keys for keys in listed if isinstance(keys, str))
        raise ValueError(
            f"the group {name!r} is asked for by the name of tokens, and this sight knows no tokens; give "
            "them with sl.watch(model, tokens=...), or say which keys, such as slice(0, 576)"
        )
    return tokens


def _check_found(members: Tensor, listed: Sequence[Any], tokens: Sequence[Sequence[str]]) -> None:
    for group, keys in enumerate(listed):
        if isinstance(keys, str) and not bool(members[..., group].any()):
            known = {token.partition("[")[0] for text in tokens for token in text}
            raise ValueError(f"no token is called {keys!r}, {did_you_mean(keys, sorted(known))}")


def check_slice(keys: slice, what: str) -> None:
    """Refuse a slice that is not of whole numbers."""
    if not all(x is None or is_integer(x) for x in (keys.start, keys.stop, keys.step)) or keys.step == 0:
        raise TypeError(f"{what} must be a slice of whole numbers, got {keys}")


def key_index(keys: Keys, s: int, what: str, of: str = "keys") -> list[int]:
    """The positions that a slice, a range, a number or indices stand for; negative ones count from the end.

    Args:
        keys: What was asked for.
        s: How many there are.
        what: Who asks, for the sentence that refuses.
        of: What they are positions of.
    """
    if isinstance(keys, slice):
        check_slice(keys, what)
        return list(range(*keys.indices(s)))
    if isinstance(keys, Tensor):
        is_tensor(keys, what)
        check_values(keys, what)
    listed: Any = keys.tolist() if isinstance(keys, Tensor) and keys.dtype != torch.bool else keys
    listed = [listed] if is_integer(listed) else listed
    if not isinstance(listed, Iterable) or isinstance(listed, str | bytes | Tensor):
        raise TypeError(
            f"{what} must be a slice, a range or a list of {of}, got {_kind(keys)}; marks become a list with "
            "marks.nonzero().flatten()"
        )
    listed = list(listed)
    if set(map(type, listed)) != {int}:
        strange = [i for i in listed if not is_integer(i)]
        if strange:
            raise TypeError(f"{what} must hold whole numbers, positions of {of}, got {strange[0]!r}")
    wrong = [i for i in listed if not -s <= i < s]
    if wrong:
        raise ValueError(f"{what} must hold {of} in 0..{s - 1}, got {int(wrong[0])}; there are {s} {of} here")
    return [int(i) % s for i in listed]


def _read_ids(ids: Tensor, s: int, device: torch.device) -> KeyGroups:
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise TypeError(
            f"ids must be whole numbers, the group of each key, got {ids.dtype}; marks become ids with "
            "marks.long()"
        )
    check_values(ids, "ids")
    if ids.dim() not in (1, 2) or ids.size(-1) != s:
        raise ValueError(f"ids must be (S,) or (B, S) with S={s}, got {tuple(ids.shape)}; one per key")
    marks = ids.to("cpu", torch.long, copy=True)  # the one wait for the device, where they lie there
    least, most = torch.stack(marks.aminmax()).tolist() if marks.numel() else (0, -1)
    if least < -1:
        raise ValueError(f"ids must be at least 0, or -1 for no group, got {least}")
    if most >= max(s, _MANY):
        raise ValueError(
            f"ids number the groups from 0, here below {max(s, _MANY)}, got {most}; number them with "
            "ids.unique(return_inverse=True)[1]"
        )
    return _remembered(KeyGroups(marks=marks, names=tuple(map(str, range(most + 1))), device=device))


def _as_key(keys: Any) -> Any:
    """What is compared to know a list of keys again; None where that would take a look at a tensor."""
    if isinstance(keys, slice | range) or type(keys) is int:
        return keys
    return tuple(keys) if isinstance(keys, list | tuple) and set(map(type, keys)) <= {int} else None


def _remembered(groups: KeyGroups) -> KeyGroups:
    """Equal groups that were read before, with the plans made for them: every layer asks for the same."""
    if groups.n_marks > _LARGE:
        return groups
    for known in tuple(_RECENT):
        if known.equals(groups):
            return known
    _RECENT.append(groups)
    return groups


def is_integer(x: object) -> TypeGuard[int]:
    """Whether it is a whole number, numpy's included."""
    return type(x) is int or (isinstance(x, Integral) and not isinstance(x, bool))


def _is_ids(groups: object, s: int) -> bool:
    return isinstance(groups, Sequence) and len(groups) == s and all(map(is_integer, groups))


def _kind(x: object) -> str:
    return f"a tensor of {x.dtype}" if isinstance(x, Tensor) else format_value(x)


def is_named(token: str, name: str) -> bool:
    """Whether a token is called so, or is part of what is: ``image[0]`` and ``image 1[7]`` of ``image``.

    Example:
        >>> [is_named("image 1[7]", name) for name in ("image", "image 1", "image 0", "image 1[7]", "ima")]
        [True, True, False, True, False]
    """
    whole, bracket, _ = token.partition("[")
    if token == name or not bracket:
        return token == name
    kind, _, number = whole.partition(" ")
    return name == whole or (name == kind and number.isdecimal())
