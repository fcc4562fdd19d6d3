"""Padded positions in torch's encoders, as they are when nobody watches.

In eval, ``nn.TransformerEncoder`` packs padded items into a nested tensor, whose layers show nothing, and
fills in zeros at the end. While it is watched they go through the plain layers; the same zeros are put in.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sightline.shapes import Bool, Float, Shaped

_ENCODER = ("src", "mask", "src_key_padding_mask", "is_causal")


def zero_padding(
    encoder: nn.TransformerEncoder, undo: contextlib.ExitStack, is_fast: Callable[[], bool]
) -> None:
    """Fill padded positions with zeros after the last layer, before the norm, whenever torch would.

    Args:
        encoder: Torch's, or one that does the same.
        undo: Gets what is to be undone.
        is_fast: Whether torch's fast path would be on, if nobody watched.
    """
    ours = hasattr(encoder, "_clears_padding")  # that of sl.nn; it asks for no mode
    if not len(encoder.layers) or not (ours or type(encoder).forward is nn.TransformerEncoder.forward):
        return
    clear: list[Tensor] = []  # the padding of the call that is under way

    def before(_encoder: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        arguments: dict[str, Any] = dict.fromkeys(_ENCODER) | dict(zip(_ENCODER, args, strict=False)) | kwargs
        src, mask, padding = arguments["src"], arguments["mask"], arguments["src_key_padding_mask"]
        if (ours or is_fast()) and padding is not None and _is_packed(encoder, src, mask, padding):
            clear.append(_forbidden(padding).unsqueeze(-1))

    def after_layer(_layer: nn.Module, _args: Any, output: Tensor) -> Tensor | None:
        return output.masked_fill(clear[-1], 0.0) if clear else None

    def after(_encoder: nn.Module, _args: Any, _output: Any) -> None:
        clear.clear()

    undo.callback(encoder.register_forward_pre_hook(before, with_kwargs=True).remove)
    undo.callback(encoder.layers[-1].register_forward_hook(after_layer).remove)
    undo.callback(encoder.register_forward_hook(after, always_call=True).remove)


def _is_packed(
    encoder: nn.TransformerEncoder,
    src: Float[Tensor, "..."],
    mask: Shaped[Tensor, "..."] | None,
    padding: Shaped[Tensor, "B S"],
) -> bool:
    """Whether torch would pack this input: the conditions of its ``TransformerEncoder.forward``."""
    if not encoder.use_nested_tensor or mask is not None or src.is_nested or src.dim() != 3:
        return False
    first = encoder.layers[0]
    if first.training or torch.is_autocast_enabled():
        return False
    if torch.is_grad_enabled() and any(x.requires_grad for x in (src, *first.parameters())):
        return False
    real = ~_forbidden(padding)
    return not encoder.mask_check or bool((real[:, :-1] >= real[:, 1:]).all())


def _forbidden(padding: Shaped[Tensor, "B S"]) -> Bool[Tensor, "B S"]:
    """True at padding; torch takes every number but zero for it."""
    return padding if padding.dtype == torch.bool else padding != 0
