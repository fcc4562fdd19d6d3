"""Which queries are padding: they look at something, but nobody should count what they look at.

In self-attention a position is padding as a query where it is padding as a key. A mask shows that of keys: no
query may look at them, not even themselves.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sightline.arguments import check_argument, rule_of
from sightline.attention.masks import Mask
from sightline.look.attention_call import AttentionCall
from sightline.look.crossing import is_cross_name
from sightline.look.score_inputs import ScoreInputs, StoredRows
from sightline.look.unseen_keys import UnseenKeys, allowed_by, own_of_prefix, unseen_positions
from sightline.shapes import Bool, is_tensor

__all__ = ["KNOWN", "NONE", "UNKNOWN", "given_padding", "padding_of"]

_LENGTHS = rule_of(Tensor | Sequence[float])

NONE = ""  # no padding that a mask would show
KNOWN = "left out"
UNKNOWN = "unknown"  # keys are masked, and which queries are padding can't be told


def padding_of(
    call: AttentionCall, name: str, given: Bool[Tensor, "B T"] | None
) -> tuple[Bool[Tensor, "B T"] | None, str]:
    """The queries of a call that are padding, and what is known of them.

    Args:
        call: The call.
        name: The module that called.
        given: What the user said is padding; it counts where it has the call's batch and length.
    """
    inputs = call.inputs
    if inputs.padding is not None:
        return inputs.padding[:, 0], KNOWN
    if given is None and call.unseen is None and inputs.modify is None and not inputs.mask.tensors:
        return None, NONE  # nothing says so
    b, _, t, s = inputs.shape
    crosses = is_cross_name(name) if call.crosses is None else call.crosses
    shown = _shown_by_keys(call, crosses=crosses)
    if given is not None and tuple(given.shape) == (b, t):
        given = given.to(inputs.q.device)
        # Where one sequence looks into another of its length, what was said may be of the other.
        if not crosses or t != s or not _agree(given, _shown_by_keys(call, crosses=False)[0]):
            return given, KNOWN
    if shown[1] == KNOWN and call.crosses is None and _is_of_keys_alone(inputs.mask):
        return None, UNKNOWN  # nothing tells that queries and keys are the same sequence
    return shown


def _is_of_keys_alone(mask: Mask) -> bool:
    """Whether a mask is the same for all queries, as its shape tells."""
    return (
        bool(mask.tensors) and not mask.bands and all(x.dim() == 4 and x.size(-2) == 1 for x in mask.tensors)
    )


def _agree(given: Bool[Tensor, "B T"], shown: Bool[Tensor, "B T"] | None) -> bool:
    """Whether what was said to be padding is what the keys show."""
    return not bool(given.any()) if shown is None else bool((given == shown).all())


def _shown_by_keys(call: AttentionCall, *, crosses: bool) -> tuple[Bool[Tensor, "B T"] | None, str]:
    """The queries that are padding as keys show it: of a sequence that looks at itself they are the same."""
    inputs = call.inputs
    b, _, t, s = inputs.shape
    if t == 1:
        return None, NONE
    if call.unseen is not None:
        return _shown_by_scores(call.unseen, b, crosses=crosses)
    says_who = inputs.modify is not None and inputs.modify.looks_at_itself is not None
    if not crosses and t == s:
        padding = _padding_of_diagonal(inputs) if says_who else None
        if padding is None and not isinstance(inputs, StoredRows):
            padding = _padding_of_mask(inputs.mask, t)
        return (None, NONE) if padding is None else (padding.expand(b, t), KNOWN)
    is_masked = not isinstance(inputs, StoredRows) and bool(inputs.mask.tensors)
    if is_masked and not crosses and t < s and (own := _own_of_prefix(inputs.mask, t)) is not None:
        return (None, NONE) if bool(own.all()) else ((~own).expand(b, t), KNOWN)
    return None, UNKNOWN if is_masked or (crosses and says_who) else NONE


def _shown_by_scores(unseen: UnseenKeys, b: int, *, crosses: bool) -> tuple[Bool[Tensor, "B T"] | None, str]:
    padding = unseen.of_batch(b)
    if padding is not None and not crosses:
        return padding, KNOWN
    is_masked = padding is not None and bool(padding.any())
    return None, UNKNOWN if is_masked or bool(unseen.is_doubtful) else NONE


def _padding_of_diagonal(inputs: ScoreInputs) -> Bool[Tensor, "B T"] | None:
    """Queries that may not even look at themselves, where a function says who may; none if nobody may."""
    assert inputs.modify is not None  # noqa: S101
    own = inputs.modify.diagonal(inputs.shape[2], inputs.q.device)
    if own is None or (not own.is_cuda and bool(own.all())):
        return None
    return ~own & own.any(-1, keepdim=True)


def _own_of_prefix(mask: Mask, t: int) -> Bool[Tensor, "b T"] | None:
    """Which queries a mask lets look at themselves, where they are the first T of a cache; else None."""
    tensors = (*mask.allowed, *map(allowed_by, mask.added))
    if mask.lengths or any(x.dim() != 4 or x.size(-2) != t for x in tensors):
        return None
    return own_of_prefix(functools.reduce(torch.logical_and, tensors).any(1))


def _padding_of_mask(mask: Mask, t: int) -> Bool[Tensor, "b T"] | None:
    found = [torch.arange(t, device=x.device) >= x.reshape(x.size(0), -1)[:, :1] for x in mask.lengths]
    for allowed in (*mask.allowed, *map(allowed_by, mask.added)):
        if allowed.dim() != 4 or allowed.size(-1) != t:
            continue
        rows = allowed.any(1)  # (b, T or 1, T)
        unseen = ~rows[:, 0] if rows.size(1) == 1 else unseen_positions(rows)
        if unseen is not None and (unseen.is_cuda or bool(unseen.any())):
            found.append(unseen)
    return functools.reduce(torch.logical_or, found) if found else None


def given_padding(
    attention_mask: Tensor | None, lengths: Tensor | Sequence[int] | None
) -> Callable[[int], Tensor] | None:
    """What the user said is padding, as a function of the length T; True at padding."""
    if attention_mask is not None and lengths is not None:
        raise ValueError("say what is padding with attention_mask= or lengths=, got both; one is enough")
    if attention_mask is not None:
        is_tensor(attention_mask, "attention_mask")
        if attention_mask.dim() != 2:
            raise ValueError(
                f"attention_mask must be a tensor (B, T), True or 1 at real tokens, got the shape "
                f"{tuple(attention_mask.shape)}"
            )
        padding = attention_mask == 0
        return lambda _t: padding
    if lengths is None:
        return None
    check_argument("lengths", lengths, _LENGTHS)
    counts = torch.as_tensor(lengths)
    if counts.dim() != 1 or counts.is_floating_point():
        raise ValueError(f"lengths must be whole numbers, one for each item, got {lengths!r}")
    return lambda t: torch.arange(t, device=counts.device) >= counts[:, None]
