"""Self-attention by relative positions, for the stacks of ``sightline.layers``: in a text, or in a grid.

rotary = Rotary(d_head)                                        # in a text
rotary = Rotary2d(d_head, grid=(8, 8))                         # in a grid of patches, row by row
rotate_self_attention(stack, rotary)                           # torch's names of the weights stay
bias_self_attention(stack, grid=(8, 8))                        # each layer learns a table of biases
"""

from typing import Any

import torch
from torch import Tensor, nn

from sightline.attention.attend import attention
from sightline.attention.from_torch import heads, mask_from_torch
from sightline.attention.masks import Mask, as_mask, bias, causal
from sightline.attention.multihead import MultiheadAttention
from sightline.models.vit_parts import rotate_2d, rotation_2d
from sightline.positions import RelativeBias2d, Rotary
from sightline.shapes import Float

__all__ = ["BiasedAttention", "Rotary2d", "RotaryAttention", "bias_self_attention", "rotate_self_attention"]

_GRID_BASE = 100.0  # a grid has tens of rows, not thousands


class Rotary2d(nn.Module):
    """Turn queries and keys by their places in a grid: half of a head's channels by row, half by column.

    There is nothing to learn and nothing to save.

    Args:
        d_head: Width of the queries and keys, D; a multiple of 4.
        grid: Rows and columns.

    Example:
        >>> q, k = Rotary2d(4, (2, 3))(torch.ones(1, 1, 6, 4), torch.ones(1, 1, 6, 4))
        >>> (q @ k.mT)[0, 0, 0]                        # depends on the distance alone
        tensor([4.0000, 3.0806, 1.1677, 3.0806, 2.1612, 0.2483])
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, d_head: int, grid: tuple[int, int]) -> None:
        super().__init__()
        if d_head % 4:
            raise ValueError(
                "rotary positions of a grid turn pairs of channels, half for rows and half for columns, so a "
                f"head's width must be a multiple of 4, got {d_head}"
            )
        cpu = torch.device("cpu")  # where the rates are, whatever the device that models are made on
        places = torch.cartesian_prod(*(torch.arange(n, device=cpu) for n in grid))
        cos, sin = rotation_2d(places[:, 0], places[:, 1], d_head, _GRID_BASE)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(
        self, q: Float[Tensor, "B H P D"], k: Float[Tensor, "B H P D"]
    ) -> tuple[Float[Tensor, "B H P D"], Float[Tensor, "B H P D"]]:
        """Turn the queries and keys of all cells."""
        q, k = rotate_2d(torch.stack([q, k]).permute(1, 3, 0, 2, 4), (self.cos, self.sin)).unbind(2)
        return q.transpose(1, 2), k.transpose(1, 2)


class _PlacedAttention(MultiheadAttention):
    """Self-attention that knows the distance between a query and a key; :meth:`_placed` says how."""

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        super().__init__(d_model, n_heads, dropout, batch_first=True)

    def _placed(self, q: Tensor, k: Tensor, mask: Any) -> tuple[Tensor, Tensor, Any]:
        """Queries, keys and mask that know their places."""
        raise NotImplementedError

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,  # noqa: ARG002  torch's signature
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As :class:`~sightline.attention.multihead.MultiheadAttention`; without weights."""
        if need_weights:
            raise ValueError(
                "attention by relative positions hands out no weights, got need_weights=True; "
                "sl.watch(model) sees them"
            )
        hint = is_causal and key_padding_mask is None
        mask = causal(align="start") if hint else mask_from_torch(attn_mask, key_padding_mask, self.num_heads)
        q, k, v, mask = heads(self, query, key, value, mask)
        q, k, mask = self._placed(q, k, mask)
        context = attention(q, k, v, mask, dropout_p=self.dropout if self.training else 0.0)
        return self.out_proj(context.transpose(1, 2).flatten(2)), None


class RotaryAttention(_PlacedAttention):
    """Self-attention whose queries and keys are turned by their positions, so that only distance counts.

    Args:
        d_model, n_heads, dropout: As for :class:`~sightline.attention.multihead.MultiheadAttention`.
        rotary: Turns queries and keys, (B, H, T, D) each.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float, rotary: nn.Module) -> None:
        super().__init__(d_model, n_heads, dropout)
        self.rotary = rotary

    def _placed(self, q: Tensor, k: Tensor, mask: Any) -> tuple[Tensor, Tensor, Any]:
        return *self.rotary(q, k), mask


class BiasedAttention(_PlacedAttention):
    """Self-attention over the cells of a grid, with a learned bias for each head and distance.

    Args:
        d_model, n_heads, dropout: As for :class:`~sightline.attention.multihead.MultiheadAttention`.
        grid: Rows and columns.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float, grid: tuple[int, int]) -> None:
        super().__init__(d_model, n_heads, dropout)
        self.relative = RelativeBias2d(n_heads, grid)

    def _placed(self, q: Tensor, k: Tensor, mask: Any) -> tuple[Tensor, Tensor, Mask]:
        added = bias(self.relative().to(q.dtype)[None])  # of the heads, not of the batch
        return q, k, added if mask is None else as_mask(mask) & added


def rotate_self_attention(stack: Any, rotary: Rotary | Rotary2d) -> None:
    """Let every layer of a stack turn the queries and keys of its self-attention; weights are drawn anew."""
    for layer in stack.layers:
        old = layer.self_attn
        layer.self_attn = RotaryAttention(old.embed_dim, old.num_heads, old.dropout, rotary)


def bias_self_attention(stack: Any, grid: tuple[int, int]) -> None:
    """Give the self-attention of every layer of a stack biases of its own; weights are drawn anew."""
    for layer in stack.layers:
        old = layer.self_attn
        layer.self_attn = BiasedAttention(old.embed_dim, old.num_heads, old.dropout, grid)
