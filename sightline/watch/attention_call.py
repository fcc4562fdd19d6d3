"""One call of attention as it was read off a kernel or off weights: what every adapter gives."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sightline.attention.masks import Mask
from sightline.look.inputs import PrecomputedWeights, ScoreInputs, ScoreModifier
from sightline.look.output_gradient import OutputGradient
from sightline.look.sharded.axes import Shard
from sightline.look.sharded.ring import Ring
from sightline.shapes import Bool, Float
from sightline.watch.padding import Padding

__all__ = ["AttentionCall", "UnreadableError", "kernel_call", "stored_call"]


class UnreadableError(Exception):
    """An attention that can't be read, and why."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionCall:
    """One call of attention, read.

    Attributes:
        inputs: What its weights are made of.
        lead: Its leading dimensions.
        lse: The log-sum-exp that the kernel has given, if it has.
        source: How it was read: ``kernel``, ``flex`` or ``weights``.
        backward: What the backward pass will tell of it, where the graph is kept.
        said: What was said of its queries that are padding.
        shard: Which items and heads of how many these are, where others have the rest.
        ring: Where the keys of other processes are looked at too: those processes.
    """

    inputs: ScoreInputs
    lead: tuple[int, ...]
    lse: Float[Tensor, "B H T"] | None = None
    source: str = "kernel"
    backward: OutputGradient | None = None
    said: Padding | None = None
    shard: Shard | None = None
    ring: Ring | None = None

    def with_sink(self, sink: Float[Tensor, " H"] | None) -> "AttentionCall":
        """The same with scores beside those of the keys, as Hugging Face adds them to FlexAttention."""
        if sink is None or self.source != "flex" or sink.numel() != self.inputs.shape[1]:
            return self
        beside = sink.detach().to(self.inputs.dtype).reshape(1, -1, 1)
        return replace(self, inputs=replace(self.inputs, sink=beside))

    def with_lengths(self, lengths: list[int]) -> "AttentionCall":
        """The same, of a nested tensor: the queries after the end of each item are padding."""
        t, device = self.inputs.shape[2], self.inputs.q.device
        return self.with_padding(
            torch.arange(t, device=device) >= torch.tensor(lengths, device=device)[:, None]
        )

    def with_padding(self, padding: Bool[Tensor, "B T"] | None) -> "AttentionCall":
        """The same, with these queries known to be padding; stored weights of theirs become zeros."""
        if padding is None:
            return self
        inputs = self.inputs
        if isinstance(inputs, PrecomputedWeights):
            stored = PrecomputedWeights.of(inputs.q.masked_fill(padding[:, None, :, None], 0.0))
            return replace(self, inputs=replace(stored, padding=padding.unsqueeze(1)))
        return replace(self, inputs=replace(inputs, padding=padding.unsqueeze(1)))


def kernel_call(
    q: Tensor,
    k: Tensor,
    mask: Mask,
    scale: float,
    lse: Tensor | None,
    *,
    modify: Callable[..., Tensor] | None = None,
    padding: Bool[Tensor, "B 1 T"] | None = None,
    source: str = "kernel",
    sink: Float[Tensor, " H"] | None = None,
) -> AttentionCall:
    """A call of a kernel, from what it was given.

    Args:
        q, k: (B, H, T, D) and (B or 1, H, S, D).
        mask: Who may look at whom, with biases.
        scale: What scores are multiplied by.
        lse: The kernel's own log-sum-exp, if it gives one; (B, H, T).
        modify: A change of the scores, on tiles of them.
        padding: Queries that are padding.
        source: How it was read.
        sink: A score of each head beside those of the keys.
    """
    b, h = q.shape[:2]
    if k.size(0) != b:  # keys that all items share
        k = k.expand(b, -1, -1, -1)
    lead = (b, h)
    mask = mask.fitted(lead, q.size(2), k.size(2)) if mask.limits else mask
    change = None if modify is None else ScoreModifier(modify, tuple(range(b)), tuple(range(h)))
    beside = None if sink is None else sink.detach().reshape(1, h, 1)
    inputs = ScoreInputs(q, k, mask, scale, modify=change, padding=padding, sink=beside)
    return AttentionCall(inputs=inputs, lead=lead, lse=lse, source=source)


def stored_call(
    weights: Float[Tensor, "... T S"], lse: Float[Tensor, "... T"], heads: int | None
) -> AttentionCall:
    """Weights that a model has computed itself.

    Args:
        weights: Any leading dimensions; one alone may hold batch and heads.
        lse: The log-sum-exp of their scores.
        heads: How many heads the module has, if it says so.
    """
    lead = tuple(weights.shape[:-2])
    if len(lead) == 1 and heads and lead[0] % heads == 0:
        lead = (lead[0] // heads, heads)
    split = max(len(lead) - 1, 1)
    four = (math.prod(lead[:split]), math.prod(lead[split:]))
    stored = PrecomputedWeights.of(weights.reshape(*four, *weights.shape[-2:]))
    return AttentionCall(inputs=stored, lead=lead, lse=lse.reshape(*four, lse.size(-1)), source="weights")
