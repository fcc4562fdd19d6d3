"""One word of a caption walked through: query, keys and values of one head of the decoder."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.data.images import normalise
from sightline.data.tokens import BOS
from sightline.models.captioner import Captioner
from sightline.shapes import Float, Shaped
from sightline.show.walk import AttentionTrace
from sightline.tasks.attention import Grid
from sightline.tasks.prediction import Prediction
from sightline.watch.watch import watch

__all__ = ["trace_word"]

_CROSS = "multihead_attn"  # what a decoder layer calls its attention over the image


@torch.no_grad()
def trace_word(
    model: Captioner, image: Shaped[Tensor, "3 h w"], ids: Sequence[int], prediction: Prediction, word: int
) -> AttentionTrace | None:
    """How the sharpest head of the decoder's last layer came to what it gives for a word.

    Args:
        model: The captioner.
        image: As the model sees it, bytes.
        ids: The caption's tokens, without BOS and EOS.
        prediction: The caption, with its attention.
        word: Which of its words.

    Returns:
        None for a caption in pieces of words, and for a decoder that is no Transformer.
    """
    attention = prediction.attention
    cross = {name: module for name, module in model.named_modules() if name.endswith(_CROSS)}
    if attention is None or not cross or len(ids) != len(attention.queries):
        return None
    assert isinstance(attention.keys, Grid)  # noqa: S101 - words look at an image
    name, module = list(cross.items())[-1]
    read: list[Tensor] = []
    hook = module.register_forward_pre_hook(
        lambda _, args, kwargs: read.append(_value_input(args, kwargs)), with_kwargs=True
    )
    device = next(model.parameters()).device
    try:
        with watch(model, layers=name, keep=True) as seen:
            model(normalise(image[None].to(device)), torch.tensor([[BOS, *ids]], device=device))
    finally:
        hook.remove()
    (sight,) = seen.calls(name)
    (kept,) = sight.require_kept("a query")
    head = int(sight.entropy[0, :, word].argmin())
    values = _values(module, read[0][0], sight.lead[-1])
    return AttentionTrace(
        word=attention.queries[word],
        text=prediction.text,
        where=f"head {head} of the decoder's last layer",
        query=kept.inputs.q[0, head, word].float().cpu(),
        keys=kept.inputs.k[0, head].float().cpu(),
        values=values[head].float().cpu(),
        grid=attention.keys,
    )


def _value_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """What the values of a call are made of."""
    value: Tensor = kwargs["value"] if "value" in kwargs else args[2]
    return value


def _values(module: Any, read: Float[Tensor, "S E"], n_heads: int) -> Float[Tensor, "H S Dv"]:
    """The values of each head."""
    assert isinstance(module, nn.MultiheadAttention)  # noqa: S101 - its name says so
    weight = module.in_proj_weight.chunk(3)[2]
    return (
        F.linear(read, weight, module.in_proj_bias.chunk(3)[2]).unflatten(-1, (n_heads, -1)).transpose(0, 1)
    )
