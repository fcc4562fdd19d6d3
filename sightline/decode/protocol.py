"""What a model must offer to be decoded, and nothing more: one step at a time.

    state = model.start(inputs)                       # the inputs are encoded once
    log_probs, state = model.step(state, ids)         # (N, V) for the ids (N,) just chosen
    state = state.select(rows)                        # a beam survives, branches or ends

The searches of this folder know a model by this alone; a model knows nothing of the searches.
"""

from typing import Protocol, Self, TypeVar

from torch import Tensor

from sightline.shapes import Float, Int

__all__ = ["State", "Steps"]

S = TypeVar("S", bound="State")


class State(Protocol):
    """What a model carries from step to step: N rows, one for each hypothesis.

    A state is a value: a step gives a new one and leaves the old as it was, so that beams can branch.
    """

    @property
    def attended(self) -> Float[Tensor, "N H S"] | None:
        """The weights of the last step over what was encoded, if the state was started to look; else None."""
        ...

    def select(self, rows: Int[Tensor, " M"]) -> Self:
        """The state of these rows, in this order; a row may be taken more than once."""
        ...


class Steps(Protocol[S]):
    """A model that can be decoded."""

    def step(self, state: S, ids: Int[Tensor, " N"]) -> tuple[Float[Tensor, "N V"], S]:
        """The log-probabilities of the next token after ``ids``, and the state that has seen them."""
        ...
