"""Scores that draw random numbers are not asked a second time: the model would get other numbers after it."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sightline.watch.attention_call import UnreadableError

__all__ = ["RefuseRandom"]


class RefuseRandom(TorchDispatchMode):
    """Inside, an operator that draws random numbers raises UnreadableError.

    Example:
        >>> with RefuseRandom():
        ...     torch.rand(3, generator=torch.Generator()).shape
        torch.Size([3])
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator, or refuse it."""
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags and kwargs.get("generator") is None:
            is_dropout = func.overloadpacket in (torch.ops.aten.dropout, torch.ops.aten.native_dropout)
            if not is_dropout or _is_training(*args, **kwargs):
                name = func.name().partition(".")[0]
                raise UnreadableError(f"its score draws random numbers ({name}); watch it after model.eval()")
        return func(*args, **kwargs)


def _is_training(_input: Any, _p: float, train: bool | None = True) -> bool:
    return train is not False
