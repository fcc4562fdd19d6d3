"""A valid call of a public name."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    """A valid call.

    Attributes:
        name: As users write it.
        function: What is called.
        arguments: By name; those of ``*args`` and operators by place, "0".
        hints: Its annotations, by argument.
    """

    name: str
    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    hints: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __call__(self, **changed: Any) -> Any:
        """Call it, with some arguments changed."""
        return self.function(**{**self.arguments, **changed})
