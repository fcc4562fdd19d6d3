"""What the name of a module says about its attention."""

import functools
import re

__all__ = ["CROSS_ATTENTION", "is_cross_name"]

# How torch and Hugging Face call the attention of a decoder to an encoder, where T = S may be an accident.
_CROSS = re.compile(r"cross|encdec|enc_dec|encoder_attn|encoder_attention|multihead_attn", re.IGNORECASE)
CROSS_ATTENTION = re.compile(r"cross_?att|encdec|enc_dec|encoder_att|multihead_attn", re.IGNORECASE)


@functools.lru_cache(1024)
def is_cross_name(name: str) -> bool:
    """Whether a module's name says that it looks from one sequence into another."""
    *around, own = name.split(".")
    inside = bool(around and CROSS_ATTENTION.search(around[-1]))  # ``crossattention.self``
    return inside or bool(_CROSS.search(own))
