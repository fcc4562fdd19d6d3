"""How large the cases of ``bench attention`` are on each device; a test passes tiny ones."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sightline.shapes import Float

# Beyond this a peer that stores all weights is left out rather than waited for.
MOST_WEIGHT_BYTES = 20e9

# How many tensors of all weights are alive at once where the weights are stored and differentiated.
_COPIES = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """What to draw.

    Attributes:
        device: Where.
        dtype: Of inputs and parameters.
        lengths: T, equal to S.
        widths: D, for the function.
        n_heads: H, for the function and the modules.
        d_model: E, for the modules.
        tokens: About how many a batch holds: it has ``tokens // T`` sequences, at least 1, at most 16.
        checked_pairs: Up to this many query-key pairs in all heads, results are checked against float64.
        memory_length: T of the cases that measure memory, or None to leave them out.
    """

    device: torch.device
    dtype: torch.dtype = torch.float32
    lengths: tuple[int, ...] = (128, 1024, 4096)
    widths: tuple[int, ...] = (64,)
    n_heads: int = 8
    d_model: int = 512
    tokens: int = 1024
    checked_pairs: int = 1 << 24
    memory_length: int | None = 16384

    @classmethod
    def of(cls, device: torch.device, *, quick: bool) -> "Sizes":
        """Give the sizes for a device; ``quick`` leaves out the long ones."""
        sizes = cls(device=device)
        if device.type == "cuda":
            sizes = cls(
                device=device,
                dtype=torch.bfloat16,
                lengths=(128, 1024, 4096, 16384),
                widths=(64, 128),
                n_heads=16,
                d_model=1024,
                tokens=16384,
                checked_pairs=1 << 30,
                memory_length=None,  # the memory of every case is measured there
            )
        return replace(sizes, lengths=(128, 1024)) if quick else sizes

    def with_lengths(self, lengths: tuple[int, ...]) -> "Sizes":
        """The same with other lengths."""
        return replace(self, lengths=lengths)

    def batch(self, length: int) -> int:
        """Give B for a length.

        Example:
            >>> sizes = Sizes(device=torch.device("cpu"), tokens=16384)
            >>> [sizes.batch(length) for length in (128, 4096, 16384, 65536)]
            [16, 4, 1, 1]
        """
        return min(max(1, self.tokens // length), 16)

    def pairs(self, length: int) -> int:
        """Give the number of query-key pairs in all heads of a batch."""
        return self.batch(length) * self.n_heads * length**2

    def weight_bytes(self, length: int) -> int:
        """Give the size of all weights of a batch, stored."""
        return self.pairs(length) * self.dtype.itemsize

    def checkable(self, length: int) -> bool:
        """Whether float64 results take neither too long nor too much memory."""
        return self.pairs(length) <= self.checked_pairs and self._fits(8 * self.pairs(length))

    def storable(self, length: int) -> bool:
        """Whether a peer that stores all weights can be asked to."""
        return self.weight_bytes(length) <= MOST_WEIGHT_BYTES and self._fits(self.weight_bytes(length))

    def draw(self, seed: int, *shape: int) -> Float[Tensor, "..."]:
        """Draw normal numbers, the same for the same seed."""
        generator = torch.Generator(self.device).manual_seed(seed)
        return torch.randn(shape, generator=generator, device=self.device, dtype=self.dtype)

    def _fits(self, n_bytes: int) -> bool:
        if self.device.type != "cuda":
            return True
        return _COPIES * n_bytes <= 0.8 * torch.cuda.mem_get_info(self.device)[0]


def bar(length: int) -> float:
    """Give the least ratio to the best peer: short inputs are allowed some overhead of Python's."""
    return 0.97 if length >= 1024 else 0.9
