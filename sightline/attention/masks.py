"""Who may look at whom: masks as values that know their own structure.

A :class:`Mask` says which of the S keys each of the T queries may look at. It remembers *why*: that it
is causal, a window, padding, or a tensor the caller drew. So the fast paths can be taken without ever
building a T x S tensor, and ``a & b`` stays exact. ``True`` means *may look*, but for the masks that torch's
modules and their drop-ins in ``sl.nn`` take: there, as in torch, it means *may not*.

The positions of queries and keys are lined up at the end: with T != S the queries are the last T of the
S positions, which is what decoding with a cache needs (T = 1 sees everything). With ``align="start"``
both begin at position zero, torch's rule for ``is_causal``.

    >>> causal().dense(3, 5).int()          # three new tokens after two cached ones
    tensor([[1, 1, 1, 0, 0],
            [1, 1, 1, 1, 0],
            [1, 1, 1, 1, 1]], dtype=torch.int32)
    >>> (causal() & window(1, 0)).dense(3, 3).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 1, 1]], dtype=torch.int32)
"""

import functools
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, get_args

import torch
from torch import Tensor

from sightline.attention.band import Align, Band, check_align, intersect
from sightline.attention.mask_shapes import aligned, cut, fit, fit_lengths, trailing_ones
from sightline.attention.mask_values import check_not_binary, refuse_marks
from sightline.messages import check_integer, format_value
from sightline.shapes import Bool, Float, Int, Shaped, check_device, is_tensor
from sightline.untrusted import check_memory

__all__ = ["Band", "Mask", "as_mask", "bias", "causal", "dense", "from_ones", "padding", "window"]


@dataclass(frozen=True, eq=False)
class Mask:
    """Everything that limits or tilts what queries look at: the conjunction of its parts.

    Build one with :func:`causal`, :func:`padding`, :func:`window`, :func:`dense`, :func:`bias` or
    :func:`from_ones`, and combine with ``&``. ``Mask()`` lets all see all.

    Attributes:
        bands: Limits on the distance between a query and a key; at most one for each alignment.
        lengths: How many keys are real, one number for each item of the batch.
        allowed: Boolean tensors, True where a query may look.
        added: Float tensors added to the scores. ``-inf`` forbids.

    Example:
        >>> (causal() & padding([2])).dense(3, 3).int().tolist()
        [[[1, 0, 0], [1, 1, 0], [1, 1, 0]]]
    """

    bands: tuple[Band, ...] = ()
    lengths: tuple[Tensor, ...] = ()
    allowed: tuple[Tensor, ...] = ()
    added: tuple[Tensor, ...] = ()

    def __and__(self, other: object) -> "Mask":
        """A query may look where both masks let it; biases add up."""
        if not isinstance(other, Mask):
            raise TypeError(
                f"& combines two masks, got {type(other).__name__}; sl.masks.dense makes one of a boolean "
                "tensor, sl.masks.bias of a float tensor"
            )
        return Mask(
            bands=intersect(self.bands + other.bands),
            lengths=self.lengths + other.lengths,
            allowed=self.allowed + other.allowed,
            added=self.added + other.added,
        )

    __rand__ = __and__  # reached from anything that is no Mask: the same sentence

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What the mask carries beyond positions."""
        return self.lengths + self.allowed + self.added

    @property
    def limits(self) -> bool:
        """Whether it says anything at all."""
        return len(self.bands) + len(self.tensors) > 0

    def dense(self, t: int, s: int, *, device: torch.device | str | None = None) -> Shaped[Tensor, "... t s"]:
        """Show the mask for T queries and S keys.

        Returns:
            A boolean tensor that ends in ``(T, S)``; or, for a mask with a bias, the float tensor that
            is added to the scores, with ``-inf`` where a query may not look. Either can be handed back
            as a mask.
        """
        check_integer("t", t, at_least=0)
        check_integer("s", s, at_least=0)
        check_device(device)
        check_memory(t * s, f"a mask of {t} x {s}")
        if device is None and self.tensors:
            device = self.tensors[0].device
        rank = max([2, *(x.dim() for x in self.allowed + self.added), *(x.dim() + 2 for x in self.lengths)])
        of_batch = self.lengths or any(x.dim() == 3 for x in self.allowed)
        if self.added and of_batch:  # a float tensor of three dimensions would read as (H, T, S)
            rank = max(rank, 4)
        leads = [
            *(aligned(x.shape, rank, batch_first=True)[:-2] for x in self.allowed),
            *(aligned(x.shape, rank, batch_first=False)[:-2] for x in self.added),
            *(trailing_ones(x.shape, rank - 2) for x in self.lengths),
        ]
        try:
            lead = torch.broadcast_shapes(*leads)
        except RuntimeError:
            shapes = ", ".join(str(tuple(x.shape)) for x in self.tensors)
            raise ValueError(
                f"the parts of a mask must broadcast with each other, got shapes {shapes}; "
                "give all of them the same batch and heads, or ones"
            ) from None
        block = self.fitted(lead, t, s).block((0, t), (0, s), t, s, device=device)
        return torch.broadcast_to(block, (*block.shape[:-2], t, s))

    def fitted(self, lead: tuple[int, ...], t: int, s: int) -> "Mask":
        """Line every part up with scores of shape ``(*lead, T, S)``; drop what does not limit them."""
        bands = (band.clipped(t, s) for band in self.bands)
        return Mask(
            bands=tuple(band for band in bands if (band.left, band.right) != (None, None)),
            lengths=tuple(fit_lengths(x, lead) for x in self.lengths),
            allowed=tuple(fit(x, (*lead, t, s), batch_first=True) for x in self.allowed),
            added=tuple(fit(x, (*lead, t, s), batch_first=False) for x in self.added),
        )

    def unfitted(self) -> "Mask":
        """Return a fitted mask as one that attention can fit again."""
        return replace(self, lengths=tuple(x[..., 0, 0] for x in self.lengths))

    def keys(self, queries: tuple[int, int], t: int, s: int) -> tuple[int, int]:
        """The range of keys outside of which none of these queries may look, by position alone."""
        first, last = 0, s
        for band in self.bands:
            left, right = band.keys(queries, t, s)
            first, last = max(first, left), min(last, right)
        return first, max(first, last)

    def block(
        self,
        queries: tuple[int, int],
        keys: tuple[int, int],
        t: int,
        s: int,
        *,
        device: torch.device | str | None = None,
    ) -> Shaped[Tensor, "... t s"]:
        """Cut the rectangle of these queries and keys out of the T x S of a :meth:`fitted` mask.

        Returns:
            Boolean, or float when the mask has a bias; it broadcasts to the rectangle, and dimensions
            of size one are left as they are.
        """
        rows, columns = torch.arange(*queries, device=device), torch.arange(*keys, device=device)
        parts = [band.allows(rows, columns, t, s) for band in self.bands]
        parts += [columns < lengths for lengths in self.lengths]
        parts += [cut(x, queries, keys) for x in self.allowed]
        allowed = functools.reduce(torch.logical_and, parts) if parts else None
        if not self.added:
            return torch.ones(1, 1, dtype=torch.bool, device=device) if allowed is None else allowed
        added = functools.reduce(torch.add, [cut(x, queries, keys) for x in self.added])
        return added if allowed is None else torch.where(allowed, added, -torch.inf)


_CAUSAL = {align: Mask(bands=(Band(None, 0, align),)) for align in get_args(Align)}  # values: made once


def causal(*, align: Align = "end") -> Mask:
    """Each query sees itself and the past.

    Args:
        align: ``"end"`` lines up the last query with the last key, so that T new tokens after S - T
            cached ones see the cache and each other's past. ``"start"`` lines up the first ones, as
            torch's ``is_causal`` does. With T = S they are the same.

    Example:
        >>> causal().dense(2, 3).int().tolist()                       # two new tokens after a cached one
        [[1, 1, 0], [1, 1, 1]]
    """
    return _CAUSAL[check_align(align)]


def window(left: int | None, right: int | None, *, align: Align = "end") -> Mask:
    """Each query sees at most ``left`` keys behind it, itself, and ``right`` ahead; None is no limit.

    Example:
        >>> window(1, 0).dense(3, 3).int().tolist()
        [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    _check_reach("left", left)
    _check_reach("right", right)
    return Mask(bands=(Band(left, right, check_align(align)),))


def padding(lengths: Int[Tensor, "..."] | list[int]) -> Mask:
    """Only the first ``lengths[b]`` keys of batch item b are real; the rest is padding.

    Args:
        lengths: One integer for each item, ``(B,)``; further dimensions line up with those of q that
            follow the batch (``(B, H)`` gives each head its own).

    Raises:
        TypeError: If they are no integers.
        ValueError: If they are marks of the real keys, ones and zeros of two dimensions or more.

    Example:
        >>> padding([1, 3]).dense(1, 3).int().tolist()
        [[[1, 0, 0]], [[1, 1, 1]]]
    """
    if not isinstance(lengths, Tensor):
        try:
            lengths = torch.as_tensor(lengths if hasattr(lengths, "__len__") else list(lengths))
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise TypeError(
                "lengths must be integers of 64 bits, one for each item of the batch, got "
                f"{format_value(lengths)}"
            ) from None
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise TypeError(
            f"lengths must be integers, one for each item of the batch, got {lengths.dtype}; "
            "a tensor that marks the real keys goes to sl.masks.from_ones(marks[:, None, :])"
        )
    refuse_marks(lengths)
    return Mask(lengths=(lengths,))


def dense(allowed: Bool[Tensor, "..."]) -> Mask:
    """The caller's own boolean tensor, True where a query may look; broadcasts to ``(..., T, S)``.

    Example:
        >>> text = torch.tensor([0, 0, 1])                            # two texts in one row
        >>> dense(text[:, None] == text).dense(3, 3).int().tolist()
        [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    is_tensor(allowed, "allowed")
    if allowed.dtype != torch.bool:
        raise TypeError(
            f"a dense mask must be boolean, True = may look, got {allowed.dtype}; sl.masks.from_ones takes "
            "ones and zeros, sl.masks.bias a tensor to be added to the scores"
        )
    return Mask(allowed=(allowed,))


def bias(added: Float[Tensor, "..."]) -> Mask:
    """A float tensor to be added to the scores; ``-inf`` forbids. Gradients flow into it.

    Said so, it may hold ones and zeros alone, which a tensor handed over as it is may not.

    Example:
        >>> q = k = torch.zeros(1, 2, 4)
        >>> sl.look(q, k, k, bias(torch.tensor([0.0, float("-inf")]))).received.tolist()
        [[2.0, 0.0]]
    """
    is_tensor(added, "added")
    if not added.is_floating_point() or added.element_size() == 1:
        raise TypeError(
            f"a bias must be a float tensor, added to the scores, got {added.dtype}; "
            "sl.masks.dense takes booleans and sl.masks.from_ones ones and zeros"
        )
    return Mask(added=(added,))


def from_ones(mask: Shaped[Tensor, "..."]) -> Mask:
    """A mask of ones (may look) and zeros (may not), of any dtype.

    Example:
        >>> from_ones(torch.tensor([[1.0, 0.0]])).dense(1, 2)
        tensor([[ True, False]])
    """
    _check_ones_and_zeros(mask)
    return Mask(allowed=(mask if mask.dtype == torch.bool else mask != 0,))


def as_mask(mask: Shaped[Tensor, "..."] | Mask | None) -> Mask:
    """Read what a caller may hand over: a Mask, a boolean tensor, a float tensor, or nothing.

    Raises:
        TypeError: If it is anything else.
        ValueError: If it is a float tensor of ones and zeros, which is no bias; see ``mask_values.py``.
    """
    if mask is None:
        return Mask()
    if isinstance(mask, Mask):
        return mask
    _check_kind(mask)
    if mask.dtype == torch.bool:
        return Mask(allowed=(mask,))
    if mask.is_floating_point() and mask.element_size() > 1:  # float8 is stored, not computed with
        check_not_binary(mask)
        return Mask(added=(mask,))
    raise TypeError(
        f"a mask must be boolean (True = may look) or float (added to the scores), got {mask.dtype}; "
        "sl.masks.from_ones(mask) takes ones and zeros of any dtype"
    )


def on_device(mask: Mask, q: Tensor) -> Mask:
    """Refuse a mask on another device than q."""
    for x in mask.tensors:
        if x.device != q.device:
            raise ValueError(
                f"the mask must be on the device of q, got {x.device} and {q.device}; "
                "build it from a tensor moved with .to(q.device)"
            )
    return mask


def _check_reach(name: str, reach: object) -> None:
    if reach is not None and (isinstance(reach, bool) or not isinstance(reach, Integral) or int(reach) < 0):
        raise ValueError(
            f"a window's {name} must be a whole number of positions >= 0 or None for no limit, got {reach!r}"
        )


def _check_kind(mask: object) -> None:
    if isinstance(mask, Tensor):
        is_tensor(mask, "mask")
        return
    _check_called(mask)
    shown, remedy = type(mask).__name__, "torch.as_tensor(mask) makes a tensor of it"
    if isinstance(mask, str):
        shown, remedy = repr(mask), "sl.masks.causal() is one"
    raise TypeError(f"a mask must be a tensor or one of sl.masks, got {shown}; {remedy}")


def _check_called(mask: object) -> None:
    if callable(mask):
        name = getattr(mask, "__name__", type(mask).__name__)
        raise TypeError(
            f"a mask must be a tensor or one of sl.masks, got the function {name}; call it, {name}()"
        )


def _check_ones_and_zeros(mask: Any) -> None:
    if isinstance(mask, Mask):
        raise TypeError("a mask of ones and zeros is a tensor, got a Mask; mask.dense(T, S) makes it one")
    _check_called(mask)
    is_tensor(mask, "mask")
    if mask.dtype == torch.bool or mask.is_meta or torch.compiler.is_compiling():  # no values to read
        return
    strange = mask[(mask != 0) & (mask != 1)]
    if strange.numel():
        raise ValueError(
            f"a mask of ones and zeros must hold nothing else, got {strange[0].item()} in a mask of shape "
            f"{tuple(mask.shape)}; sl.attention and sl.masks.bias take masks that are added to the scores"
        )
