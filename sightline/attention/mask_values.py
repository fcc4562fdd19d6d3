"""Masks whose values contradict how they would be read, found without making a GPU wait.

A float tensor handed over as a mask is added to the scores. ``torch.ones(T, T).tril()`` would hide nothing
that way, so a float mask that holds ones *and* zeros and nothing else is refused: :func:`check_not_binary`.
(All ones or all zeros add the same to every score and change nothing; a bias that asks for gradients is a
bias.) Integers of ones and zeros for every key are no lengths: :func:`refuse_marks`.

In torch's masks True means *may not look*. Handed a mask of the other kind, the drop-ins would hide what is
to be seen; they warn of a mask that hides every key of a row (:func:`warn_of_hidden_rows`), of padding at the
wrong end (:func:`warn_of_padding`) and of a float mask of ones and zeros (:func:`warn_if_binary`), and then
do as torch does. A warning points at the caller's own line.

On the CPU the values are read at once. On a GPU they are summed up, and the summary is read by a later call,
when it has arrived: no call waits, and the sentence comes a few calls late or, at the latest, when the
program ends. A tensor is tested once, not once per layer, and on a GPU the drop-ins test the first masks they
meet and then one in 64: who has the polarity wrong has it wrong every time. Under ``torch.compile``,
``torch.func`` and CUDA graphs there are no values to read, and a change through ``.data`` is not noticed.
"""

import atexit
import sys
import weakref
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sightline.messages import warn_caller

__all__ = [
    "check_not_binary",
    "refuse_marks",
    "warn_if_binary",
    "warn_of_hidden_rows",
    "warn_of_padding",
]


class _Rule(NamedTuple):
    """What a mask is tested for."""

    summary: Callable[[Tensor], Tensor]  # a few numbers of its values, computed where they are
    judge: Callable[[list[Any]], "str | _Rule | None"]  # by those: a sentence, a closer look, or all is well
    refused: bool


class _Pending(NamedTuple):
    """A summary on its way from a GPU."""

    event: torch.cuda.Event
    summary: Tensor
    rule: _Rule
    mask: Tensor
    version: int | None
    name: str


_FIRST_TESTS, _TEST_EVERY = 32, 64
_counts: Counter[_Rule] = Counter()  # masks met on a GPU
_pending: deque[_Pending] = deque()
_tested: dict[int, tuple["weakref.ref[Tensor]", int, _Rule]] = {}  # id -> tensor, its version, the rule


def check_not_binary(mask: Tensor) -> None:
    """Refuse a float tensor of ones and zeros as a bias.

    Raises:
        ValueError: If it is one; on a GPU, if one of an earlier call was.
    """
    if not mask.requires_grad:
        _test(_NO_ONES, mask, "mask")


def refuse_marks(lengths: Tensor) -> None:
    """Refuse lengths, one for each item and head, that are marks of the real keys.

    Raises:
        ValueError: If they are; on a GPU, if those of an earlier call were.
    """
    if lengths.dim() > 1:
        _test(_NO_MARKS, lengths, "lengths")


def warn_if_binary(mask: Tensor, name: str) -> None:
    """Warn of a float mask of ones and zeros where torch's rule is to add it to the scores."""
    if mask.is_floating_point() and not mask.requires_grad:
        _test(_ONES_AS_IN_TORCH, mask, name)


def warn_of_hidden_rows(mask: Tensor, name: str) -> None:
    """Warn of a boolean mask of torch's kind that hides all keys of a row, which then comes out as zeros."""
    if mask.dtype == torch.bool:
        _test(_NO_HIDDEN_ROWS, mask, name)


def warn_of_padding(mask: Tensor, name: str) -> None:
    """The same of padding, (B, S) or (S,); and of padding that begins every row and ends none."""
    if mask.dtype == torch.bool:
        _test(_PADDING_AT_THE_END, mask, name)


def _range(mask: Tensor) -> Tensor:
    return torch.stack([x.float() for x in mask.aminmax()])  # autocast stacks one kind of half precision


def _all_ones_and_zeros(mask: Tensor) -> Tensor:
    return ((mask == 0) | (mask == 1)).all()[None]


def _hidden_row(mask: Tensor) -> Tensor:
    return mask.all(-1).any()[None]


def _hidden_row_or_beginning(mask: Tensor) -> Tensor:
    return torch.stack([mask.all(-1).any(), mask[..., 0].all() & ~mask[..., -1].any()])


def _ones_and_zeros(sentence: str, *, refused: bool) -> _Rule:
    """By its range most biases are told from ones and zeros; only one between them is looked at whole."""
    whole = _Rule(_all_ones_and_zeros, lambda x: sentence if x[0] else None, refused)
    return _Rule(_range, lambda x: whole if x == [0, 1] else None, refused)


_POLARITY = (
    "; in torch's masks True means may not look, so a mask that marks what to attend to goes in as ~{name}"
)
_HIDDEN = "{name} hides every key of a row, which comes out as zeros" + _POLARITY
_SWAPPED = (
    "{name} hides the first key of every row and shows the last, as padding on the left does" + _POLARITY
)
_MARKS = (
    "lengths say how many keys are real, one for each item, or for each item and head, got {dtype} {shape} "
    "of ones and zeros; marks of the real keys go to sl.masks.from_ones(marks[:, None, :])"
)
_NO_ONES = _ones_and_zeros(
    "a float mask is added to the scores, and one that holds only ones and zeros hides nothing, got {dtype} "
    "{shape}; sl.masks.from_ones(mask) lets queries look at the ones, sl.masks.bias(mask) adds it all the "
    "same",
    refused=True,
)
_ONES_AS_IN_TORCH = _ones_and_zeros(
    "{name} holds only ones and zeros, and as in torch a float mask is added to the scores, which hides "
    "nothing; {name} == 0 hides the zeros, {name} == 1 the ones",
    refused=False,
)
_NO_MARKS = _Rule(_range, lambda x: _MARKS if x in ([0, 1], [1, 1]) else None, refused=True)
_NO_HIDDEN_ROWS = _Rule(_hidden_row, lambda x: _HIDDEN if x[0] else None, refused=False)
_PADDING_AT_THE_END = _Rule(
    _hidden_row_or_beginning,
    lambda x: _HIDDEN if x[0] else _SWAPPED if x[1] else None,
    refused=False,
)


def _test(rule: _Rule, mask: Tensor, name: str) -> None:
    """Raise or warn if the values break a rule: now, or on a GPU when their summary has arrived."""
    if not _has_values(mask):
        return
    if mask.is_cuda:
        _collect()
    version = None if mask.is_inference() else mask._version  # noqa: SLF001 - inference counts none
    if version is not None and _was_tested(mask, version, rule):
        return
    if mask.is_cuda and not rule.refused and not _is_due(rule):
        return
    if mask.is_cuda:
        _send(rule, mask, version, name)
    else:
        verdict: str | _Rule | None = rule
        while isinstance(verdict, _Rule):
            verdict = verdict.judge(verdict.summary(mask).tolist())
        if verdict is not None:
            _say(verdict, rule, mask, name)
    if version is not None:
        key = id(mask)
        _tested[key] = weakref.ref(mask, lambda _: _tested.pop(key, None)), version, rule


def _has_values(mask: Tensor) -> bool:
    if type(mask) not in (Tensor, nn.Parameter) or mask.is_meta or mask.numel() == 0:
        return False
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:  # noqa: SLF001
        return False
    if torch._C._are_functorch_transforms_active():  # noqa: SLF001
        return False
    return not (mask.is_cuda and torch.cuda.is_current_stream_capturing())


def _was_tested(mask: Tensor, version: int, rule: _Rule) -> bool:
    """Whether these very values were tested before: a mask goes through every layer, and is tested once."""
    tensor, *before = _tested.get(id(mask), (None,))
    return tensor is not None and tensor() is mask and before == [version, rule]


def _is_due(rule: _Rule) -> bool:
    """Whether to test the next new mask on a GPU where a warning is all: the first ones, then one in 64."""
    count = _counts[rule]
    _counts[rule] += 1
    return count < _FIRST_TESTS or count % _TEST_EVERY == 0


def _send(rule: _Rule, mask: Tensor, version: int | None, name: str) -> None:
    """Have a GPU sum up a mask and send the summary, which is read when it has arrived."""
    with torch.cuda.device(mask.device):
        summary = rule.summary(mask)
        host = torch.empty_like(summary, device="cpu", pin_memory=True)
        host.copy_(summary, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
    _pending.append(_Pending(event, host, rule, mask, version, name))


def _collect(*, wait: bool = False) -> None:
    """Judge the masks whose summaries have arrived; those that need a closer look are summed up again."""
    while _pending and (wait or _pending[0].event.query()):
        event, summary, rule, mask, version, name = _pending.popleft()
        if wait:
            event.synchronize()
        if version is not None and mask._version != version:  # noqa: SLF001
            continue
        verdict = rule.judge(summary.tolist())
        if isinstance(verdict, _Rule):
            _send(verdict, mask, version, name)
        elif verdict is not None:
            _say("an earlier call: " + verdict, rule, mask, name)


def _say(sentence: str, rule: _Rule, mask: Tensor, name: str) -> None:
    sentence = sentence.format(name=name, dtype=mask.dtype, shape=tuple(mask.shape))
    if rule.refused:
        raise ValueError(sentence)
    warn_caller(sentence)


@atexit.register
def _collect_the_last() -> None:
    try:
        _collect(wait=True)
    except ValueError as problem:
        sys.stderr.write(f"sightline: {problem}\n")
