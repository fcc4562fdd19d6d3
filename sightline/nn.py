"""``torch.nn`` with this package's attention in it: swap the import line, keep the code.

    from sightline import nn          # instead of: from torch import nn

The names below are ours; every other name is torch's.
"""

from typing import Any

import torch.nn

from sightline.attention.multihead import MultiheadAttention, MultiHeadSelfAttention, SelfAttention
from sightline.layers import (
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

__all__ = [
    "MultiHeadSelfAttention",
    "MultiheadAttention",
    "SelfAttention",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]


def __getattr__(name: str) -> Any:
    try:
        return getattr(torch.nn, name)
    except AttributeError:
        raise AttributeError(f"neither sightline.nn nor torch.nn has {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(torch.nn)})
