"""What a model attends to, found without Sightline.

Two ways: the weights that the model itself returns with eager attention, and what passes through PyTorch's
softmax and ``scaled_dot_product_attention`` while it runs, where the weights of the latter are computed in
float64 from the same queries and keys.
"""

import contextlib
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn

SAME = 1e-3  # outputs that are further apart are those of another computation


def set_attention(model, implementation):
    """Choose how a model of Hugging Face attends."""
    if not hasattr(model, "set_attn_implementation"):
        return
    try:
        model.set_attn_implementation(implementation)
    except ValueError:  # a part has no such implementation, as the convolutions of DETR
        for part in model.children():
            set_attention(part, implementation)
    for part in model.modules():  # some hold copies of the configuration
        if getattr(part, "config", None) is not None:
            part.config._attn_implementation = implementation


def returned(model, inputs):
    """The weights that the model returns with eager attention, in the order of its calls; [] for none."""
    torch.manual_seed(1)
    if isinstance(model, nn.MultiheadAttention):
        return [model(**inputs | {"need_weights": True, "average_attn_weights": False})[1]]
    if not hasattr(model, "set_attn_implementation"):
        return []
    implementation = model.config._attn_implementation
    set_attention(model, "eager")
    try:
        out = model(**inputs, output_attentions=True)
    finally:
        set_attention(model, implementation)
    if out.get("decoder_attentions") is None:
        own, crossed = out.get("attentions") or (), out.get("cross_attentions") or ()
        found = [x for x in (*crossed, *own) if x is not None]
        is_weights = all(((x >= 0) & (x <= 1)).all() for x in found)  # SqueezeBERT returns scores
        return found if is_weights else []
    decoding = zip(out["decoder_attentions"], out["cross_attentions"], strict=True)
    return [*out["encoder_attentions"], *(x for pair in decoding for x in pair)]


def overheard(model, inputs):
    """The weights (..., T, S) of all calls of softmax and of ``scaled_dot_product_attention`` in a run."""
    torch.manual_seed(1)
    with _overhearing() as found:
        model(**inputs)
    return found


@contextlib.contextmanager
def _overhearing():
    found, inside = [], []

    def softmax(plain):
        def call(*args, **options):
            inside.append(1)
            try:
                out = plain(*args, **options)
            finally:
                inside.pop()
            if not inside and out.dim() >= 3:  # not that of a router of experts
                found.append(out.detach())
            return out

        return call

    def attend(plain):
        def call(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **options):
            if not q.is_nested:
                inside.append(1)
                found.append(fused(q.detach(), k.detach(), attn_mask, is_causal=is_causal, scale=scale))
                inside.pop()
            return plain(q, k, v, attn_mask, dropout_p, is_causal, scale=scale, **options)

        return call

    places = [(F, "softmax"), (torch, "softmax"), (torch.Tensor, "softmax")]
    fast = torch.backends.mha.get_fastpath_enabled()
    with contextlib.ExitStack() as patched:
        patched.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)  # which calls neither of them
        for place, name in places:
            patched.enter_context(mock.patch.object(place, name, softmax(getattr(place, name))))
        plain = F.scaled_dot_product_attention
        patched.enter_context(mock.patch.object(F, "scaled_dot_product_attention", attend(plain)))
        yield found


def fused(q, k, attn_mask=None, *, is_causal=False, scale=None):
    """The weights of ``scaled_dot_product_attention`` in float64."""
    k = k.repeat_interleave(q.size(-3) // k.size(-3), -3)
    scores = q.double() @ k.double().mT * (q.size(-1) ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask.detach()
    return scores.softmax(-1).nan_to_num(0.0)


def fitted(weights, sight):
    """Weights in the shape of a sight, or of the mean of its heads; None if they fit neither."""
    shape = torch.Size((*sight.lead, sight.t, sight.s))
    if weights.size(-1) == sight.s + 1:  # a sink, which takes its share and is not a key
        weights = weights[..., :-1]
    if weights.dim() == 3 and weights.numel() == shape.numel():  # items and heads as one
        weights = weights.reshape(shape)
    if weights.dim() == 4 and torch.equal(
        weights[:, :1].expand_as(weights), weights
    ):  # a mean, for each head
        weights = weights[:, :1]
    is_fitting = weights.shape in {shape, (shape[0], 1, *shape[2:])}
    return weights.double() if is_fitting else None


def statistics(weights):
    """What a sight measures of weights (..., T, S)."""
    entropy = -torch.special.xlogy(weights, weights).sum(-1)
    return {"entropy": entropy, "received": weights.sum(-2), "peak": weights.amax(-1)}
