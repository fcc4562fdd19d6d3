"""Recurrent layers, GRU or LSTM, run over a whole sequence at once or one step at a time; and their state.

    states, last = layer(x, first)             # (B, T, E): one call of the library's kernel
    state = layer.once(x[:, t], state)         # the same numbers, a step at a time

A state is one tensor ``(B, E)`` for a GRU; for an LSTM the cell stands beside it, ``(B, 2 E)``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from sightline.shapes import Bool, Float, Int, Shaped, did_you_mean

__all__ = ["CELLS", "Bidirectional", "Recurrence", "RecurrentState"]

CELLS = ("gru", "lstm")


@dataclass(frozen=True, kw_only=True, eq=False)
class RecurrentState:
    """What a recurrent decoder carries: N = B * K rows, the K hypotheses of each of B inputs side by side.

    Attributes:
        rows: What each hypothesis has of its own, such as the states of its layers.
        inputs: What was encoded, once for all hypotheses of an input.
        look: Whether weights are wanted.
        attention_weights: Those of the last step.
    """

    rows: tuple[Float[Tensor, "N _"], ...]
    inputs: tuple[Shaped[Tensor, "B ..."], ...]
    look: bool = False
    attention_weights: Float[Tensor, "N H S"] | None = None

    def __len__(self) -> int:
        """How many rows there are, N."""
        return self.rows[0].size(0)

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.rows[0].device

    @property
    def width(self) -> int:
        """How many hypotheses an input has, K."""
        return len(self) // self.inputs[0].size(0) if len(self) else 1

    def select(self, rows: Int[Tensor, " M"]) -> "RecurrentState":
        """The state of any rows, in this order, each with an input of its own from here on."""
        return replace(self.reorder(rows), inputs=tuple(x[rows // self.width] for x in self.inputs))

    def branch(self, width: int) -> "RecurrentState":
        """Each row ``width`` times, side by side; what was encoded stays shared."""
        return self._map_rows(lambda x: x.repeat_interleave(width, 0))

    def reorder(self, rows: Int[Tensor, " M"]) -> "RecurrentState":
        """Each row goes on from another one (or the same) of the same input."""
        return self._map_rows(lambda x: x[rows])

    def _map_rows(self, move: Callable[[Tensor], Tensor]) -> "RecurrentState":
        attention_weights = None if self.attention_weights is None else move(self.attention_weights)
        return replace(self, rows=tuple(map(move, self.rows)), attention_weights=attention_weights)


class Recurrence(nn.Module):
    """A layer of GRU or LSTM cells.

    Args:
        cell: ``gru`` or ``lstm``.
        d_in: Width of the input.
        d_model: Width of the output, E.

    Example:
        >>> layer = Recurrence("gru", 3, 5)
        >>> x, first = torch.randn(2, 7, 3), torch.zeros(2, layer.d_state)
        >>> states, last = layer(x, first)
        >>> torch.allclose(layer.step(x[:, 0], first), states[:, 0], atol=1e-6)
        True
    """

    def __init__(self, cell: str, d_in: int, d_model: int) -> None:
        super().__init__()
        if cell not in CELLS:
            raise ValueError(f"unknown cell {cell!r}, {did_you_mean(cell, CELLS)}")
        self.rnn: nn.GRU | nn.LSTM = (nn.GRU if cell == "gru" else nn.LSTM)(d_in, d_model, batch_first=True)
        self.d_model = d_model
        self.d_state = d_model if cell == "gru" else 2 * d_model
        for name, weight in self.rnn.named_parameters():
            if name.startswith("weight_hh"):
                for block in weight.data.chunk(weight.size(0) // d_model):  # each gate starts as a rotation
                    nn.init.orthogonal_(block)
            elif name.startswith("weight_ih"):
                nn.init.xavier_uniform_(weight)
            else:
                nn.init.zeros_(weight)

    def forward(
        self, x: Float[Tensor, "B T Din"], state: Float[Tensor, "B Es"]
    ) -> tuple[Float[Tensor, "B T E"], Float[Tensor, "B Es"]]:
        """Run over a whole sequence: the output of every step, and the last state."""
        with torch.autocast(x.device.type, enabled=False):  # the library's kernel has no bfloat16
            x, state = x.to(self._dtype), state.to(self._dtype)
            if isinstance(self.rnn, nn.GRU):
                states, last = self.rnn(x, state[None].contiguous())
                return states, last[0]
            hidden, cell = state[None].chunk(2, -1)
            states, (hidden, cell) = self.rnn(x, (hidden.contiguous(), cell.contiguous()))
            return states, torch.cat([hidden[0], cell[0]], -1)

    def step(self, x: Float[Tensor, "B Din"], state: Float[Tensor, "B Es"]) -> Float[Tensor, "B Es"]:
        """One step: the state after it, whose first E numbers are the output."""
        rnn: Any = self.rnn  # whose weights have no types
        weights = (rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_ih_l0, rnn.bias_hh_l0)
        with torch.autocast(x.device.type, enabled=False):
            x, state = x.to(self._dtype), state.to(self._dtype)
            if isinstance(rnn, nn.GRU):
                return torch.gru_cell(x, state, *weights)
            return torch.cat(torch.lstm_cell(x, state.chunk(2, -1), *weights), -1)

    def output(self, state: Float[Tensor, "B Es"]) -> Float[Tensor, "B E"]:
        """The output of a state, for the layers above."""
        return state[:, : self.d_model]

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.rnn.parameters()).dtype


class Bidirectional(nn.Module):
    """A bidirectional recurrent layer over padded sequences.

    The reverse direction turns each sequence around within its own length, so that nothing is packed and
    no length travels to the host.
    """

    def __init__(self, cell: str, d_in: int, d_model: int) -> None:
        super().__init__()
        self.ahead = Recurrence(cell, d_in, d_model)
        self.back = Recurrence(cell, d_in, d_model)

    def forward(self, x: Float[Tensor, "B S Din"], real: Bool[Tensor, "B S"]) -> Float[Tensor, "B S E2"]:
        """Both directions side by side, ``E2 = 2 E``; ``real`` marks what is no padding, which comes last."""
        first = x.new_zeros(x.size(0), self.ahead.d_state)
        order = _reversed_indices(real)[..., None]
        ahead, _ = self.ahead(x, first)
        back, _ = self.back(x.gather(1, order.expand_as(x)), first)
        return torch.cat([ahead, back.gather(1, order.expand_as(back))], -1)


def _reversed_indices(real: Bool[Tensor, "B S"]) -> Tensor:
    """The positions of each sequence from its end to its beginning; padding stays where it is."""
    here = torch.arange(real.size(1), device=real.device)
    there = real.sum(1, keepdim=True) - 1 - here
    return torch.where(there >= 0, there, here)
