"""Dice of a look's own: a score that draws random numbers is asked again, and the model must not feel it.

Torch's generators belong to the whole process. Putting one back to where it was would hand out the same
numbers twice to whoever draws in another thread, so a look draws from a generator that nobody else has.
"""

import functools
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["OwnDice"]

_ATEN: Any = torch.ops.aten


class OwnDice(TorchDispatchMode):
    """Inside, random numbers come from generators of this block.

    Example:
        >>> before = torch.get_rng_state()
        >>> with OwnDice():
        ...     x = torch.nn.functional.dropout(torch.ones(5), 0.5) + torch.rand(5)
        >>> torch.equal(torch.get_rng_state(), before)
        True
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator; if it throws dice, with our own."""
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        if func in (_ATEN.dropout.default, _ATEN.native_dropout.default):
            return self._drop(func, *args, **kwargs)
        if not _takes_generator(func.overloadpacket):
            raise NotImplementedError(
                f"the score draws random numbers with {func}, which takes no generator; draw with torch.rand"
            )
        generator = self._generator(_device(args, kwargs))
        return func.overloadpacket(*args, **kwargs | {"generator": generator})

    def _drop(self, func: Any, x: Tensor, p: float, train: bool | None = True) -> Any:
        mask = torch.ones_like(x, dtype=torch.bool)
        if train or train is None:
            mask = torch.rand(x.shape, device=x.device, generator=self._generator(x.device)) >= p
        dropped = x * mask * (1 / (1 - p) if (train or train is None) and p < 1 else 1)
        return (dropped, mask) if func is _ATEN.native_dropout.default else dropped

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device)
        return self._generators[device]


@functools.cache
def _takes_generator(packet: Any) -> bool:
    """Whether one of an operator's forms does."""
    forms = [getattr(packet, name)._schema for name in packet.overloads()]  # noqa: SLF001
    return any(argument.name == "generator" for form in forms for argument in form.arguments)


def _device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    """Where an operator draws."""
    given = kwargs.get("device")
    if given is not None:
        return torch.device(given)
    first = next((x for x in args if isinstance(x, Tensor)), None)
    return torch.device("cpu") if first is None else first.device
