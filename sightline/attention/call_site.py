"""Where a user called this package, for warnings that point at the line to change."""

import sys
import warnings
from typing import Any, NamedTuple

__all__ = ["CallSite", "call_site"]

_NOT_THE_USERS = {"torch", "sightline"}
_NOT_CALLED_BY_USERS = {"sightline.attention.mask_values", __name__}


class CallSite(NamedTuple):
    """The caller's line, and the name that an argument has in the function called there."""

    name: str
    file: str = ""
    line: int = 0
    module: str = ""
    registry: dict[Any, Any] | None = None  # by which Python shows a warning once for a line

    def warn(self, sentence: str) -> None:
        """Warn of that line."""
        warnings.warn_explicit(sentence, UserWarning, self.file, self.line, self.module, self.registry)


def call_site(argument: object, name: str) -> CallSite:
    """Walk up to the nearest line that is neither torch's nor this package's.

    Args:
        argument: What was handed over.
        name: Its name here; a mask is ``attn_mask`` in attention and ``src_mask`` in the layer around it.

    Returns:
        The line, and what the function that was called there calls the argument.
    """
    frame = sys._getframe(1)  # noqa: SLF001
    while True:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in _NOT_THE_USERS or frame.f_back is None:
            registry = frame.f_globals.setdefault("__warningregistry__", {})
            return CallSite(name, frame.f_code.co_filename, frame.f_lineno, module, registry)
        if module not in _NOT_CALLED_BY_USERS:
            code = frame.f_code
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            name = next((each for each in names if frame.f_locals.get(each) is argument), name)
        frame = frame.f_back
