"""The letters every shape in this package is written in, and the sentences that answer a wrong one.

====  ====================================  =========================================
      what it counts                        in "Attention Is All You Need"
====  ====================================  =========================================
B     batch                                 (not written)
H     heads                                 h
T     queries, the target length            n, the decoder's position
S     keys and values, the source length    n, the encoder's position
D     width of a head's queries and keys    d_k
Dv    width of a head's values              d_v
E     width of the model                    d_model
V     vocabulary                            (not written)
====  ====================================  =========================================

Shapes stand in annotations as ``Float[Tensor, "B H T D"]``. With jaxtyping installed a test run turns
them into checks; without it they read as plain tensors and the package still imports.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sightline.messages import did_you_mean, shortened

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped
else:
    try:
        from jaxtyping import Bool, Float, Int, Shaped
    except ImportError:  # jaxtyping is an extra

        class _Unchecked:
            def __class_getitem__(cls, item: tuple[type, str]) -> Any:
                return item[0]

        Bool, Float, Int, Shaped = (
            type(name, (_Unchecked,), {}) for name in ("Bool", "Float", "Int", "Shaped")
        )

__all__ = [
    "Bool",
    "Float",
    "Int",
    "Shaped",
    "are_cast",
    "are_plain",
    "autocasting",
    "check_device",
    "check_qkv",
    "check_rows",
    "check_same_width",
    "check_values",
    "did_you_mean",
    "is_grouped",
    "is_tensor",
    "leading",
    "shown",
]


_DENSE = (torch.strided, torch.jagged)
_COMPUTED = (torch.float32, torch.float16, torch.bfloat16, torch.float64)  # not the float8 that only store


def shown(**tensors: Any) -> str:
    """Name the shapes of some tensors as an error message shows them.

    Example:
        >>> import torch
        >>> shown(k=torch.zeros(2, 7), v=torch.zeros(2, 6))
        'k (2, 7) and v (2, 6)'
    """
    parts = [f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items()]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def is_tensor(x: object, name: str) -> None:
    """Refuse what is not a tensor, with a sentence that says how to make it one."""
    if not isinstance(x, Tensor):
        raise TypeError(
            f"{name} must be a torch.Tensor, got {type(x).__name__}; torch.as_tensor({name}) makes one"
        )
    if x.layout not in _DENSE:
        raise TypeError(f"{name} must be a dense tensor, got {x.layout}; {name}.to_dense() makes one")


def check_values(x: Tensor, name: str) -> None:
    """Refuse a tensor whose numbers are needed and that has none."""
    if x.is_meta:
        raise ValueError(
            f"{name} must hold numbers, got a tensor {tuple(x.shape)} on the meta device, without any"
        )


def check_device(device: torch.device | str | None) -> None:
    """Refuse a device that is not there; None is left alone."""
    if device is None:
        return
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as problem:
        if str(device).lower().startswith("gpu"):
            meant = f"cuda{str(device)[3:]}"
            raise ValueError(f"there is no device {str(device)!r} here; did you mean {meant!r}?") from None
        reason = str(problem).partition("\n")[0].partition("Expected one of")[0]
        raise ValueError(
            f"there is no device {shortened(str(device))} here{reason and f' ({reason})'}; 'cpu' is there"
        ) from None


def check_rows(**tensors: Tensor) -> None:
    """Refuse what is no dense float tensor of a length and a width."""
    for name, x in tensors.items():
        is_tensor(x, name)
        if x.dim() < 2:
            raise ValueError(
                f"{name} must have a length and a width, (..., length, width), got {name} of shape "
                f"{tuple(x.shape)}; {name}[None] adds a dimension"
            )
        if x.dtype not in _COMPUTED:
            wide = " of 16 bits or more" if x.is_floating_point() else ""
            raise TypeError(f"{name} must be a float tensor{wide}, got {x.dtype}; {name}.float() makes one")


def check_qkv(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Refuse queries, keys and values that can't belong together; their widths are the score's business."""
    check_rows(q=q, k=k, v=v)
    if not q.dtype == k.dtype == v.dtype and not are_cast(q, k, v):
        raise TypeError(
            f"q, k and v must have the same dtype, got {q.dtype}, {k.dtype} and {v.dtype}; "
            "convert them with .to(q.dtype)"
        )
    if not q.device == k.device == v.device:
        raise ValueError(
            f"q, k and v must be on the same device, got {q.device}, {k.device} and {v.device}; "
            "move them with .to(q.device)"
        )
    if k.size(-2) != v.size(-2):
        raise ValueError(
            f"k and v must have the same length S, got S={k.size(-2)} for {shown(k=k)} and "
            f"S={v.size(-2)} for {shown(v=v)}"
        )


def autocasting(x: Tensor) -> bool:
    """Whether torch will bring tensors on this device to one dtype by itself."""
    if not torch._C._is_any_autocast_enabled():  # noqa: SLF001 (on no device, which most inputs are told by)
        return False
    device = x.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def are_cast(*tensors: Tensor) -> bool:
    """Whether torch will bring these to one dtype by itself: autocast does, but for float64."""
    return autocasting(tensors[0]) and all(x.dtype != torch.float64 for x in tensors)


def are_plain(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether this is the common case that needs no further check: plain tensors that fit together."""
    if not type(q) is type(k) is type(v) is Tensor:
        return False
    shape, keys = q.shape, k.shape
    return (
        len(shape) == 4
        and keys == v.shape
        and shape[0] == keys[0]
        and shape[1] == keys[1] > 0
        and keys[2] > 0
        and shape[3] == keys[3] > 0
        and q.stride()[3] == k.stride()[3] == v.stride()[3] == 1  # half the time of stride(3)
        and q.dtype == k.dtype == v.dtype
        and q.device == k.device == v.device
        and q.dtype in _COMPUTED
        and not q.is_nested
    )


def check_same_width(q: Tensor, k: Tensor) -> None:
    """Refuse queries and keys that have no dot product."""
    if q.size(-1) != k.size(-1):
        raise ValueError(
            f"q and k must have the same width D, got D={q.size(-1)} and D={k.size(-1)} for "
            f"{shown(q=q, k=k)}; sl.scores.General maps one width to another"
        )
    if q.size(-1) == 0:
        raise ValueError(f"q and k must be at least 1 wide, got D=0 for {shown(q=q, k=k)}")


def is_grouped(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether several heads of q share one of k and v: four dimensions, and a multiple of their heads."""
    return (
        q.dim() == k.dim() == v.dim() == 4
        and k.size(1) == v.size(1)
        and 1 < k.size(1) < q.size(1)
        and q.size(1) % k.size(1) == 0
    )


def leading(q: Tensor, k: Tensor, v: Tensor) -> tuple[int, ...]:
    """The leading dimensions of the scores, those of q, k and v broadcast; with grouped heads, q's."""
    if q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        return tuple(q.shape[:-2])
    shapes: list[tuple[int, ...]] = [tuple(x.shape[:-2]) for x in (q, k, v)]
    if is_grouped(q, k, v):
        shapes = [tuple(q.shape[:2]), (*k.shape[:1], 1), (*v.shape[:1], 1)]
    try:
        return tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        raise ValueError(
            "the leading dimensions of q, k and v must broadcast, or with four dimensions the heads of q "
            f"be a multiple of those of k and v, got {shown(q=q, k=k, v=v)}"
        ) from None
