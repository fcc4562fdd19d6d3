"""Arrays as JSON carries them: a shape, and the numbers in base64, little-endian."""

import base64
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

__all__ = ["pack", "unpack"]

_KINDS = {"f32": "<f4", "u8": "u1", "u16": "<u2", "i32": "<i4"}


def pack(x: "Tensor | npt.NDArray[Any]", kind: str = "f32") -> dict[str, Any]:
    """An array for JSON.

    Example:
        >>> pack(np.array([[1, 2]]), "u8")
        {'shape': [1, 2], 'u8': 'AQI='}
    """
    array = x.detach().cpu().numpy() if isinstance(x, Tensor) else x
    data = np.ascontiguousarray(array.astype(_KINDS[kind])).tobytes()
    return {"shape": list(array.shape), kind: base64.b64encode(data).decode()}


def unpack(packed: dict[str, Any]) -> "npt.NDArray[Any]":
    """The array again.

    Example:
        >>> unpack(pack(np.array([0.5]))).tolist()
        [0.5]
    """
    kind = next(kind for kind in _KINDS if kind in packed)
    return np.frombuffer(base64.b64decode(packed[kind]), _KINDS[kind]).reshape(packed["shape"])
