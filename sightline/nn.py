"""``torch.nn`` with this package's attention in it: swap the import line, keep the code.

    from sightline import nn          # instead of: from torch import nn

The names below are ours; every other name is torch's.
"""

import contextlib
import sys
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
__all__ += [name for name in dir(torch.nn) if not name.startswith("_") and name not in __all__]

# ``import sightline.nn.functional as F`` gives torch's own module, not a second copy of it.
__path__: list[str] = []
for _name, _module in list(sys.modules.items()):
    if _name.startswith("torch.nn."):
        sys.modules.setdefault(f"sightline{_name.removeprefix('torch')}", _module)


def __getattr__(name: str) -> Any:
    if not name.startswith("__"):
        with contextlib.suppress(AttributeError):
            return getattr(torch.nn, name)
    raise AttributeError(f"neither sightline.nn nor torch.nn has {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(torch.nn)})
