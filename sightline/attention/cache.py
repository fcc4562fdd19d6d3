"""Keys and values kept while decoding: a value that is passed in and handed back.

    cache = Cache()
    for token in ...:
        cache = cache.append(k, v)                              # (B, H, 1, D) each
        context = attention(q, cache.k, cache.v, causal())      # T = 1 sees all S

An old cache stays what it was when a new one is made from it, so a beam can branch. Yet a step copies only
what is new: caches that descend from each other share one buffer, which grows by doubling.
"""

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from sightline.shapes import Float, Int, autocasting, shown

__all__ = ["Cache"]

_LEAST_ROOM = 64  # positions of a buffer, so that a short text never outgrows its first


@dataclass(eq=False)
class _Room:
    """A buffer with space at the end, and how much of it is taken."""

    k: Tensor
    v: Tensor
    taken: int


@dataclass(frozen=True, eq=False)
class Cache:
    """The keys and values of the S positions decoded so far.

    Example:
        >>> empty = Cache()
        >>> one = empty.append(torch.ones(2, 3, 1, 4), torch.ones(2, 3, 1, 5))
        >>> two = one.append(torch.zeros(2, 3, 1, 4), torch.zeros(2, 3, 1, 5))
        >>> len(empty), len(one), len(two), tuple(two.v.shape)
        (0, 1, 2, (2, 3, 2, 5))
    """

    _room: _Room | None = None
    _length: int = 0

    def __len__(self) -> int:
        """How many positions are kept, S."""
        return self._length

    @property
    def k(self) -> Float[Tensor, "B H S D"]:
        """The keys."""
        return self._filled().k[:, :, : self._length]

    @property
    def v(self) -> Float[Tensor, "B H S Dv"]:
        """The values."""
        return self._filled().v[:, :, : self._length]

    def append(self, k: Float[Tensor, "B H T D"], v: Float[Tensor, "B H T Dv"]) -> "Cache":
        """Keep T more positions; this cache stays as it is."""
        if k.dim() != 4 or v.dim() != 4 or k.shape[:3] != v.shape[:3]:
            raise ValueError(
                f"k and v must be (B, H, T, D) and (B, H, T, Dv) with equal B, H, T, got {shown(k=k, v=v)}"
            )
        if self._room is None:
            empty = Cache(_Room(k[:, :, :0], v[:, :, :0], 0))
            return empty.append(k, v)
        old = self._room
        if (k.dtype, k.device) != (old.k.dtype, old.k.device):
            raise TypeError(
                f"new keys must have the dtype and device of the cached ones, got {k.dtype} on {k.device} "
                f"for {old.k.dtype} on {old.k.device}"
            )
        if (k.shape[:2], k.size(3), v.size(3)) != (old.k.shape[:2], old.k.size(3), old.v.size(3)):
            raise ValueError(
                "new keys and values must match the cached ones in batch, heads and width, "
                f"got {shown(k=k, v=v)} for cached {shown(k=self.k, v=self.v)}"
            )
        length = self._length + k.size(2)
        if torch.is_grad_enabled() and any(x.requires_grad for x in (k, v, old.k, old.v)):
            # autocast concatenates one kind of half precision only
            with torch.autocast(k.device.type, enabled=False) if autocasting(k) else nullcontext():
                k, v = torch.cat([self.k, k], dim=2), torch.cat([self.v, v], dim=2)
            return Cache(_Room(k, v, length), length)
        room = old
        stale = old.k.is_inference() and not torch.is_inference_mode_enabled()  # can't be written to here
        if stale or old.taken != self._length or length > old.k.size(2):  # or another branch wrote, or full
            room = _Room(_grown(self.k, length), _grown(self.v, length), length)
        room.k[:, :, self._length : length] = k
        room.v[:, :, self._length : length] = v
        room.taken = length
        return Cache(room, length)

    def select(self, index: Int[Tensor, " K"]) -> "Cache":
        """Keep these items of the batch, in this order, as a beam search does with its survivors."""
        if self._room is None:
            return self
        return Cache(_Room(self.k[index], self.v[index], self._length), self._length)

    def _filled(self) -> _Room:
        if self._room is None:
            raise ValueError(
                "this cache is empty, it has no keys or values yet; append(k, v) gives one that has"
            )
        return self._room


def _grown(x: Tensor, length: int) -> Tensor:
    """A buffer with room to double, and the old contents at its beginning."""
    buffer = x.new_empty(*x.shape[:2], max(2 * length, _LEAST_ROOM), x.size(3))
    buffer[:, :, : x.size(2)] = x
    return buffer
