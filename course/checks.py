"""What all checks share: random input, and a comparison that knows common slips."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["agree", "drawn"]

SMALL = 12  # numbers that a message shows in full


def drawn(seed: int, *shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Return random tensors of these shapes, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


def agree(answer: Any, expected: Any, slips: Mapping[str, Any] | None = None, *, near: float = 1e-4) -> None:
    """Assert that an answer is the expected one; if it is what a common slip gives, the message says which.

    Args:
        answer: What the exercise returned: numbers, a list of numbers, a tensor, or a tuple of these.
        expected: What it should have returned.
        slips: For each hint, the answer of those who need it.
        near: By how much a number may differ.
    """
    __tracebackhide__ = True  # pytest shows the line of the check instead
    problem = _difference(answer, expected, near)
    hints = [hint for hint, slip in (slips or {}).items() if not _difference(answer, slip, near)]
    assert not problem, "\nhint: ".join([problem, *hints])
    assert not hints, f"the check is wrong: a slip has the right answer ({hints[0]})"


def _difference(answer: Any, expected: Any, near: float) -> str:
    """What is wrong with an answer; empty if nothing is."""
    if answer is None:
        return "the answer is None: is there a return?"
    if isinstance(expected, tuple):
        if not isinstance(answer, tuple | list) or len(answer) != len(expected):
            return f"{len(expected)} results are expected, separated by commas; got {_shown(answer)}"
        problems = [_difference(*pair, near) for pair in zip(answer, expected, strict=True)]
        return next(filter(None, problems), "")
    try:
        found, wanted = _tensor(answer), _tensor(expected)
    except (TypeError, ValueError, RuntimeError):
        return f"expected {_shown(expected)}, got {_shown(answer)}"
    if found.shape != wanted.shape and max(found.dim(), wanted.dim()) > 1:
        return f"expected the shape {tuple(wanted.shape)}, got {tuple(found.shape)}"
    if wanted.dtype is torch.bool and found.dtype is not torch.bool:
        return f"expected True and False, as x > 0 gives them, got numbers: {_shown(answer)}"
    if found.is_floating_point() and found.isnan().any():
        return "it has NaN (not a number), as 0 / 0 and inf - inf give"
    if found.shape != wanted.shape or not torch.allclose(found.double(), wanted.double(), near, near):
        return f"expected {_shown(expected)}, got {_shown(answer)}"
    return ""


def _tensor(value: Any) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64 if isinstance(value, float) else None).detach()


def _shown(value: Any) -> str:
    """A value for a message: its numbers if they are few, else the first ones."""
    if not isinstance(value, Tensor):
        return repr(value)[:200]
    if value.numel() <= SMALL:
        return str(value.detach())
    return f"a tensor {tuple(value.shape)} that begins with {value.detach().flatten()[:4]}"
