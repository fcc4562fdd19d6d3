"""What a beam search tried, step by step: to be drawn, or read.

trace = BeamTrace()
beam(model, state, width=3, max_length=20, trace=trace)
trace.steps[0].tokens            # the three likeliest first tokens of the first input
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from sightline.shapes import Bool, Float, Int

__all__ = ["BeamStep", "BeamTrace"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BeamStep:
    """One step of the search for one input. Rows are numbered within the step.

    Attributes:
        parents: The row of the step before that each kept beginning continues.
        tokens: The token that it adds.
        log_probs: The log-probability of that token after its beginning.
        scores: The log-probability of the whole beginning.
        ended: Rows of the step before that ended here, each with its final score, divided for its length.
        weights: Where each row of the step before looked, (W, S), the mean of the heads; None if not kept.
    """

    parents: tuple[int, ...]
    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    scores: tuple[float, ...]
    ended: tuple[tuple[int, float], ...]
    weights: Float[Tensor, "W S"] | None


@dataclass(eq=False)
class BeamTrace:
    """The steps of a search, of the input with number ``item``."""

    item: int = 0
    steps: list[BeamStep] = field(default_factory=list)

    def add(
        self,
        *,
        before: Float[Tensor, "B W"],
        candidates: tuple[Float[Tensor, "B M"], Int[Tensor, "B M"], Int[Tensor, "B M"]],
        kept: Int[Tensor, "B K"],
        ended: Bool[Tensor, "B M"],
        final: Float[Tensor, "B M"],
        weights: Float[Tensor, "N H S"] | None,
    ) -> None:
        """Note a step.

        Args:
            before: Scores of the beginnings so far.
            candidates: Scores, rows and tokens of their likeliest continuations.
            kept: Which of those go on.
            ended: Which of those are an end.
            final: What an end is scored with.
            weights: Where the beginnings looked.
        """
        scores, rows, tokens = (x[self.item] for x in candidates)
        k = kept.size(1)
        chosen = [i for i in kept[self.item].tolist() if scores[i] > -torch.inf]
        over = [i for i in range(k) if ended[self.item, i] and scores[i] > -torch.inf]
        looked = None
        if weights is not None:
            looked = weights.unflatten(0, (before.size(0), -1))[self.item].mean(1).cpu()
        self.steps.append(
            BeamStep(
                parents=tuple(int(rows[i]) for i in chosen),
                tokens=tuple(int(tokens[i]) for i in chosen),
                log_probs=tuple(float(scores[i] - before[self.item, rows[i]]) for i in chosen),
                scores=tuple(float(scores[i]) for i in chosen),
                ended=tuple((int(rows[i]), float(final[self.item, i])) for i in over),
                weights=looked,
            )
        )
