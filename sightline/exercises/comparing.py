"""Compares an answer with the key's, and says where they differ in a sentence."""

import math
from typing import Any

import torch
from torch import Tensor

from sightline.exercises.child import Other

__all__ = ["difference", "is_same", "shown"]

_SMALL = 12  # numbers that a message shows in full


def difference(expected: Any, answer: Any, parts: tuple[str, ...], tolerance: float) -> str:  # noqa: PLR0911 - a kind each
    """What is wrong with an answer; empty if nothing is."""
    if isinstance(expected, tuple):
        if not isinstance(answer, tuple | list) or len(answer) != len(expected):
            wanted = ", ".join(parts) or f"{len(expected)} values"
            return f"expected ({wanted}), got {_kind(answer)}"
        names = parts or tuple(f"value {n}" for n in range(1, len(expected) + 1))
        for name, one, other in zip(names, expected, answer, strict=True):
            if problem := difference(one, other, (), tolerance):
                return f"{name}: {problem}"
        return ""
    if isinstance(expected, Tensor):
        return _of_tensors(expected, answer, tolerance)
    if isinstance(expected, list):
        return _of_lists(expected, answer, tolerance)
    if isinstance(answer, Tensor) and answer.numel() == 1 and isinstance(expected, bool | int | float):
        answer = answer.item()
    if not _is_near(expected, answer, tolerance):
        return f"expected {shown(expected)}, got {shown(answer)}"
    return ""


def is_same(expected: Any, answer: Any, tolerance: float) -> bool:
    """Whether two answers are the same; NaN is the same as NaN."""
    if isinstance(expected, Tensor) and isinstance(answer, Tensor):
        alike = (expected.dtype is torch.bool) == (answer.dtype is torch.bool)
        return (
            alike
            and expected.shape == answer.shape
            and torch.allclose(
                expected.double(), answer.double(), rtol=tolerance, atol=tolerance, equal_nan=True
            )
        )
    if isinstance(expected, tuple | list) and isinstance(answer, tuple | list):
        return len(expected) == len(answer) and all(
            is_same(one, other, tolerance) for one, other in zip(expected, answer, strict=True)
        )
    if isinstance(expected, Tensor) != isinstance(answer, Tensor):
        return False
    return _is_near(expected, answer, tolerance)


def shown(value: Any) -> str:  # noqa: PLR0911 - a kind each
    """A value for a message: in full if it is small, else its shape.

    Example:
        >>> shown([1.0, 0.5]), shown(torch.zeros(3, 5, 7)), shown(2 / 3)
        ('[1.0, 0.5]', 'tensor (3, 5, 7)', '0.6667')
    """
    if isinstance(value, Tensor):
        if value.numel() > _SMALL or value.ndim > 2:
            return f"tensor {tuple(value.shape)}"
        return f"tensor({shown(value.tolist())})"
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return str(round(value, 4))
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    if isinstance(value, list):
        listed = ", ".join(map(shown, value[:_SMALL]))
        return f"[{listed}{', ...' if len(value) > _SMALL else ''}]"
    if isinstance(value, dict):
        return f"a dictionary of {len(value)}"
    if isinstance(value, Other):
        return f"a {value.name}"
    return repr(value)[:80]


def _as_tensor(answer: Any) -> Any:
    """A number or a list of numbers as a tensor; all else as it is."""
    if not isinstance(answer, bool | float | int | list | tuple):
        return answer
    try:
        return torch.tensor(answer)
    except (ValueError, TypeError, RuntimeError):
        return answer


def _of_tensors(expected: Tensor, answer: Any, tolerance: float) -> str:
    answer = _as_tensor(answer)
    if not isinstance(answer, Tensor):
        return f"expected a tensor {tuple(expected.shape)}, got {_kind(answer)}"
    if answer.shape != expected.shape:
        swapped = expected.ndim > 1 and answer.shape == expected.mT.shape
        remark = "; the last two are swapped" if swapped else ""
        return f"expected the shape {tuple(expected.shape)}, got {tuple(answer.shape)}{remark}"
    if problem := _of_kinds(expected, answer):
        return problem
    apart = (answer.double() - expected.double()).abs().nan_to_num(posinf=math.inf)
    if bool((apart <= tolerance * (1 + expected.double().abs())).all()):
        return ""
    if expected.numel() <= _SMALL and expected.ndim <= 2:
        return f"expected {shown(expected.tolist())}, got {shown(answer.tolist())}"
    worst = int(apart.argmax())
    place = [int(n) for n in torch.unravel_index(torch.tensor(worst), expected.shape)]
    one, other = expected.flatten()[worst].item(), answer.flatten()[worst].item()
    return f"expected {shown(one)} at {place}, got {shown(other)}"


def _of_kinds(expected: Tensor, answer: Tensor) -> str:
    """Whether numbers are what is asked for, and are numbers."""
    if expected.dtype is torch.bool and answer.dtype is not torch.bool:
        found = str(answer.dtype).removeprefix("torch.")
        return f"expected True and False, got a tensor of {found}; a comparison such as x > 0 gives them"
    if expected.dtype is not torch.bool and answer.dtype is torch.bool:
        return "expected numbers, got True and False"
    if answer.is_floating_point() and answer.isnan().any() and not expected.isnan().any():
        return "it has NaN (not a number), as 0 / 0 and inf - inf give"
    return ""


def _of_lists(expected: list[Any], answer: Any, tolerance: float) -> str:
    if isinstance(answer, Tensor):
        answer = answer.tolist()
    if not isinstance(answer, list | tuple):
        return f"expected a list of {len(expected)}, got {_kind(answer)}"
    answer = list(answer)
    if not is_same(expected, answer, tolerance):
        return f"expected {shown(expected)}, got {shown(answer)}"
    return ""


def _is_near(expected: Any, answer: Any, tolerance: float) -> bool:
    numbers = (bool, int, float)
    if isinstance(expected, numbers) and isinstance(answer, numbers):
        if math.isnan(expected) or math.isnan(answer):
            return math.isnan(expected) and math.isnan(answer)
        return abs(expected - answer) <= tolerance * (1 + abs(expected))
    return type(expected) is type(answer) and bool(expected == answer)


def _kind(value: Any) -> str:
    """What an answer is, for a message."""
    if value is None:
        return "None (is there a return?)"
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    return shown(value)
