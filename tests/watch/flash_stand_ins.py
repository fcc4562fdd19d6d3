"""Operators under the names that flash-attn and its relatives would register, computed in plain PyTorch."""

import itertools

import torch

LIBRARIES = []


def stand_in(name, schema, function):
    """Register an operator under a name that another package would."""
    namespace = name.split("::")[0]
    library = torch.library.Library(namespace, "FRAGMENT")
    library.define(f"{name.split('::')[1]}{schema}")
    library.impl(name.split("::")[1], function, "CPU")
    LIBRARIES.append(library)
    operator = getattr(getattr(torch.ops, namespace), name.split("::")[1])
    return operator.default


def dense(q, k, v, scale, added, softcap=0.0):
    """(B, T, H, D): output and log-sum-exp."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = q @ k.repeat_interleave(q.size(1) // k.size(1), 1).mT * scale
    scores = scores if not softcap else softcap * (scores / softcap).tanh()
    scores = scores + added
    lse = scores.logsumexp(-1)
    weights = (scores - lse[..., None]).exp().nan_to_num(0.0).to(v.dtype)
    return (weights @ v.repeat_interleave(q.size(1) // v.size(1), 1)).transpose(1, 2).contiguous(), lse


def band(t, s, left, right, shift=None):
    ahead = torch.arange(s) - torch.arange(t)[:, None] - (s - t if shift is None else shift)
    allowed = torch.ones(t, s, dtype=torch.bool)
    allowed &= (ahead >= -left) if left >= 0 else True
    allowed &= (ahead <= right) if right >= 0 else True
    return torch.zeros(t, s).masked_fill(~allowed, -torch.inf)


def flash(q, k, v, dropout_p, softmax_scale, causal, left, right, softcap, slopes, _return):
    added = band(q.size(1), k.size(1), left, 0 if causal else right)
    if slopes is not None:
        i = torch.arange(q.size(1))[:, None] + k.size(1) - q.size(1)
        added = added - slopes[:, None, None] * (i - torch.arange(k.size(1))).abs()
    out, lse = dense(q, k, v, softmax_scale, added, softcap)
    return out, lse, torch.empty(0), torch.empty(0)


FLASH = stand_in(
    "flash_attn::_flash_attn_forward",
    "(Tensor q, Tensor k, Tensor v, float dropout_p, float softmax_scale, bool causal, int window_size_left, "
    "int window_size_right, float softcap, Tensor? alibi_slopes, bool return_softmax)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    flash,
)


def packed(q, k, v, cu_q, cu_k, scale, added):
    """(total, H, D): each sequence on its own."""
    out, lse = torch.empty_like(q), q.new_empty(q.size(1), q.size(0))
    k_starts = cu_q.tolist() if cu_k is None else cu_k.tolist()
    for i, (a, b) in enumerate(zip(cu_q.tolist()[:-1], cu_q.tolist()[1:], strict=True)):
        c, d = k_starts[i], k_starts[i + 1]
        part, part_lse = dense(q[None, a:b], k[None, c:d], v[None, c:d], scale, added(b - a, d - c))
        out[a:b], lse[:, a:b] = part[0], part_lse[0]
    return out, lse


def flash_varlen(q, k, v, cu_q, cu_k, _mq, _mk, _p, scale, causal, left=-1, right=-1, *_):
    right = 0 if causal else right
    return (*packed(q, k, v, cu_q, cu_k, scale, lambda t, s: band(t, s, left, right)), q.new_empty(0), q[:0])


VARLEN = stand_in(
    "flash_attn::_flash_attn_varlen_forward",
    "(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, SymInt max_seqlen_q, "
    "SymInt max_seqlen_k, float dropout_p, float softmax_scale, bool causal, int window_size_left=-1, "
    "int window_size_right=-1, float softcap=0.0, Tensor? alibi_slopes=None, bool return_softmax=False)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    flash_varlen,
)


def flash_with_sink(q, k, v, _out, cu_q, cu_k, scale, causal, left, right, s_aux):
    """What a hub's build of FlashAttention 3 does, fixed and packed; its lse knows the sink."""

    def one(q, k, v):
        added = band(q.size(1), k.size(1), left, 0 if causal else right)
        out, lse = dense(q, k, v, scale, added)
        if s_aux is None:
            return out, lse
        both = torch.logaddexp(lse, s_aux[:, None].to(lse.dtype))
        return (out * (lse - both).exp().transpose(1, 2)[..., None]).to(out.dtype), both

    if cu_q is None:
        return one(q, k, v)
    out, lse = torch.empty_like(q), q.new_empty(q.size(1), q.size(0))
    for (a, b), (c, d) in zip(
        itertools.pairwise(cu_q.tolist()), itertools.pairwise(cu_k.tolist()), strict=True
    ):
        part, part_lse = one(q[None, a:b], k[None, c:d], v[None, c:d])
        out[a:b], lse[:, a:b] = part[0], part_lse[0]
    return out, lse


HUB = stand_in(
    "_vllm_flash_attn3_0a1b2c3::fwd",
    "(Tensor q, Tensor k, Tensor v, Tensor? out_, Tensor? cu_seqlens_q_, Tensor? cu_seqlens_k_, "
    "float softmax_scale, bool is_causal, int window_size_left, int window_size_right, "
    "Tensor? s_aux_) -> (Tensor, Tensor)",
    flash_with_sink,
)


def flash_in_pages(q, k, v, scale, _causal, _tables):
    return dense(q, k, v, scale, torch.zeros(q.size(1), k.size(1)))


PAGED = stand_in(
    "xformers_flash::flash_fwd",
    "(Tensor query, Tensor key, Tensor value, float softmax_scale, bool is_causal, Tensor? block_tables)"
    " -> (Tensor, Tensor)",
    flash_in_pages,
)
