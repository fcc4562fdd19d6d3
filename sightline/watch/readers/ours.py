"""Calls of ``sl.attention``, read from their arguments: one call may be several kernels, or none."""

from collections import OrderedDict
from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor, nn

from sightline.attention.masks import as_mask
from sightline.look.inputs import ScoreInputs
from sightline.look.score_inputs import make_score_inputs
from sightline.watch.readers.sdpa import UnreadableError

_OURS = ("q", "k", "v", "mask")
_Module = TypeVar("_Module", bound=nn.Module)


def read_attention_call(
    args: tuple[Any, ...], kwargs: dict[str, Any], *, kept: bool
) -> tuple[ScoreInputs, tuple[int, ...]]:
    """Read a call of ``sl.attention``: what its weights are made of, and its leading dimensions.

    Args:
        args, kwargs: Those of the call, which has been made and is right.
        kept: Whether the pairs will be asked later, when a score that learns may have learned more.
    """
    arguments = dict(zip(_OURS, args, strict=False)) | kwargs
    q, k, v, mask = arguments["q"], arguments["k"], arguments["v"], as_mask(arguments.get("mask"))
    inputs, lead = make_score_inputs(q, k, v, mask, arguments.get("scale"), arguments.get("score"))
    if inputs.score is not None:
        inputs = replace(inputs, score=_without_hooks(inputs.score, copied=kept))
    return inputs, lead


def _without_hooks(module: _Module, *, copied: bool) -> _Module:
    """The same without its hooks, which would take a look for a call; its weights copied, if asked for."""
    silent = module.__new__(type(module))
    hooks = [name for name in module.__dict__ if name.startswith(("_forward_", "_backward_"))]
    silent.__dict__ = module.__dict__ | {name: OrderedDict() for name in hooks}
    for name in ("_parameters", "_buffers"):
        detached = ((n, None if x is None else x.detach()) for n, x in module.__dict__[name].items())
        apart = copied or name == "_buffers"  # a buffer may be written to by the look
        silent.__dict__[name] = {n: x.clone() if apart and x is not None else x for n, x in detached}
    parts = {n: None if x is None else _without_hooks(x, copied=copied) for n, x in module._modules.items()}  # noqa: SLF001
    silent.__dict__["_modules"] = parts
    return silent


def check_numbers(output: Any) -> None:
    """Refuse to look at what holds none."""
    first: Tensor = output[0] if isinstance(output, tuple) else output
    if first.device.type == "meta" or type(first).__name__ == "FakeTensor":
        raise UnreadableError("it ran on meta or fake tensors, which hold no numbers")
