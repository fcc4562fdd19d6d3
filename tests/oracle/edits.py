"""The same edits written by hand, in eager attention."""

from contextlib import contextmanager
from dataclasses import dataclass

import torch

MIN = torch.finfo(torch.float32).min

EDITS = {
    "zero": {"heads": [1], "ablate": "zero"},
    "mean": {"heads": [0, 2], "ablate": "mean"},
    "uniform": {"heads": [1, 2], "ablate": "uniform"},
    "uniform everywhere": {"ablate": "uniform"},
    "forbid": {"forbid": [([3, 4], slice(0, 2)), (None, [1])]},
    "forbid one head": {"heads": [2], "forbid": [([-1], [0, 1, 2])]},
    "temperature": {"temperature": 2.5},
    "temperature of a head": {"heads": [0], "temperature": 0.4},
    "scale": {"heads": [1], "scale": -0.5},
    "several": {"heads": [0, 1], "forbid": [([4], [2])], "temperature": 1.7, "scale": 3.0},
}


@dataclass
class ByHand:
    """Eager attention that makes one edit."""

    heads: list[int] | None = None
    ablate: str | None = None
    forbid: tuple = ()
    temperature: float | None = None
    scale: float | None = None

    def __call__(self, q, k, v, added, scale):
        if q.size(-3) != k.size(-3):
            k, v = (x.repeat_interleave(q.size(-3) // x.size(-3), -3) for x in (k, v))
        heads = list(range(q.size(-3))) if self.heads is None else self.heads
        scores = q @ k.mT * scale + added
        if self.temperature is not None:
            scores[..., heads, :, :] = scores[..., heads, :, :] / self.temperature
        if self.ablate == "uniform":
            flat = torch.where(added > MIN / 2, 0.0, added).expand_as(scores)
            scores[..., heads, :, :] = flat[..., heads, :, :]
        for queries, keys in self.forbid:
            forbidden = torch.zeros_like(scores, dtype=torch.bool)
            for head in heads:
                for i in torch.arange(q.size(-2))[slice(None) if queries is None else queries].reshape(-1):
                    forbidden[..., head, i, slice(None) if keys is None else keys] = True
            scores = scores.masked_fill(forbidden, -torch.inf)
        weights = scores.softmax(-1).nan_to_num(0.0)
        if self.scale is not None:
            weights[..., heads, :, :] = weights[..., heads, :, :] * self.scale
        if self.ablate == "zero":
            weights[..., heads, :, :] = 0.0
        output = weights @ v
        if self.ablate == "mean":
            output[..., heads, :, :] = output[..., heads, :, :].mean((0, 2), keepdim=True)
        return output


PLAIN = ByHand(scale=1.0, heads=[])


@contextmanager
def eager_in_transformers(names, edit):
    """Hugging Face's models on eager attention with an edit in the named modules; yields its name."""
    import transformers
    from transformers.masking_utils import AttentionMaskInterface, eager_mask

    def attend(module, query, key, value, attention_mask, scaling=None, position_bias=None, **_):
        scaling = query.size(-1) ** -0.5 if scaling is None else scaling
        added = torch.zeros(1, 1, query.size(2), key.size(2))
        added = added if position_bias is None else added + position_bias
        added = added if attention_mask is None else (added + attention_mask).clamp(min=MIN)
        by_hand = edit if module in names else PLAIN
        return by_hand(query, key, value, added, scaling).transpose(1, 2).contiguous(), None

    transformers.AttentionInterface.register("by_hand", attend)
    AttentionMaskInterface.register("by_hand", eager_mask)
    yield "by_hand"
