"""What encoder and decoder share."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def activation_of(activation: str | Callable[[Tensor], Tensor]) -> tuple[Callable[[Tensor], Tensor], int]:
    """The activation of a name, and the number by which torch's inference kernel knows it.

    Returns:
        The function, and 1 for ReLU, 2 for GELU, 0 for any other.
    """
    if isinstance(activation, str):
        if activation not in {"relu", "gelu"}:
            raise RuntimeError(
                f"activation should be relu/gelu, not {activation}; pass any other as a function"
            )
        return (F.relu, 1) if activation == "relu" else (F.gelu, 2)
    if activation is F.relu or isinstance(activation, nn.ReLU):
        return activation, 1
    if activation is F.gelu or isinstance(activation, nn.GELU):
        return activation, 2
    return activation, 0


def sequence_length(x: Tensor, layer: Any) -> int:
    """The length of ``(T, E)``, of ``(B, T, E)`` or, without ``batch_first``, of ``(T, B, E)``."""
    return x.size(1 if x.dim() == 3 and layer.self_attn.batch_first else 0)


def is_causal_mask(mask: Tensor | None, t: int) -> bool:
    """Whether a mask in torch's polarity lets each position see itself and the past, and nothing else.

    Example:
        >>> is_causal_mask(nn.Transformer.generate_square_subsequent_mask(5), 5)
        True
    """
    if not isinstance(mask, Tensor) or tuple(mask.shape) != (t, t) or torch.compiler.is_compiling():
        return False  # a compiled graph can't ask what a tensor holds; the mask is then used as it is
    if mask.dtype != torch.bool and not mask.is_floating_point():
        return False  # attention refuses it
    future = torch.ones(t, t, dtype=torch.bool, device=mask.device).triu(1)
    if mask.dtype != torch.bool:
        future = torch.zeros_like(mask).masked_fill_(future, -torch.inf)
    return bool((mask == future).all())
