"""The protocol that a model implements to be decoded one step at a time.

    state = model.start(inputs)                       # the inputs are encoded once
    log_probs, state = model.step(state, ids)         # (N, V) for the ids (N,) just chosen
    state = state.select(rows)                        # a beam survives, branches or ends

The searches of this folder know a model by this alone; a model knows nothing of the searches.
"""

from typing import Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor

from sightline.shapes import Float, Int

__all__ = ["SharedState", "State", "StepModel", "branch", "reorder"]

_Same = TypeVar("_Same")  # typing.Self, which run-time checks of a method can't resolve


@runtime_checkable
class State(Protocol):
    """The state of a model between steps: N rows, one for each hypothesis.

    A state is a value: a step gives a new one and leaves the old as it was, so that beams can branch.
    """

    def __len__(self) -> int:
        """How many rows there are, N."""
        ...

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        ...

    @property
    def attention_weights(self) -> Float[Tensor, "N H S"] | None:
        """The weights of the last step over what was encoded, if the state was started to look; else None."""
        ...

    def select(self: _Same, rows: Int[Tensor, " M"]) -> _Same:  # noqa: PYI019
        """The state of these rows, in this order; a row may be taken more than once."""
        ...


@runtime_checkable
class SharedState(Protocol):
    """A state that stores the encoding once for all hypotheses of an input: faster, and optional."""

    def branch(self: _Same, width: int) -> _Same:  # noqa: PYI019
        """Each row ``width`` times, side by side: as ``select`` with each row repeated."""
        ...

    def reorder(self: _Same, rows: Int[Tensor, " N"]) -> _Same:  # noqa: PYI019
        """As ``select``, where each row takes the place of one of the same input."""
        ...


S = TypeVar("S", bound=State)


@runtime_checkable
class StepModel(Protocol[S]):
    """A model that can be decoded."""

    def step(self, state: S, ids: Int[Tensor, " N"]) -> tuple[Float[Tensor, "N V"], S]:
        """The log-probabilities of the next token after ``ids``, and the state that has seen them."""
        ...


def branch(state: S, width: int) -> S:
    """Each row ``width`` times, side by side, in the way that the state does best."""
    shared: object = state
    if isinstance(shared, SharedState):
        return cast("S", shared.branch(width))
    rows = torch.arange(len(state), device=state.device)
    return state if width == 1 else state.select(rows.repeat_interleave(width))


def reorder(state: S, rows: Int[Tensor, " N"]) -> S:
    """Rows that go on from others of the same input, in the way that the state does best."""
    shared: object = state
    return cast("S", shared.reorder(rows)) if isinstance(shared, SharedState) else state.select(rows)
