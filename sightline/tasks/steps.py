"""The steps of a decoding: how likely each token was when it was written, and what else might have been."""

from collections.abc import Callable, Sequence

from torch import Tensor

from sightline.shapes import Float
from sightline.show.explorer.steps import Step

__all__ = ["Step", "decoding_steps"]

_ALTERNATIVES = 5


def decoding_steps(
    logits: Float[Tensor, "T V"], ids: Sequence[int], names: Callable[[Sequence[int]], Sequence[str]]
) -> list[Step]:
    """The steps that wrote some tokens.

    Args:
        logits: Of the token after each one that was read: row t wrote token t.
        ids: What was written.
        names: Gives a name to each id.

    Example:
        >>> steps = decoding_steps(torch.tensor([[0.0, 2.0, 1.0]]), [2], lambda ids: [f"<{i}>" for i in ids])
        >>> steps[0].token, round(steps[0].probability, 3), [name for name, _ in steps[0].alternatives]
        ('<2>', 0.245, ['<1>', '<2>', '<0>'])
    """
    shares = logits[: len(ids)].float().softmax(-1).cpu()
    best = shares.topk(min(_ALTERNATIVES, shares.size(-1)), dim=-1)
    return [
        Step(
            token=token,
            probability=float(shares[t, ids[t]]),
            alternatives=tuple(zip(names(best.indices[t].tolist()), best.values[t].tolist(), strict=True)),
            query=t,
        )
        for t, token in enumerate(names(ids))
    ]
