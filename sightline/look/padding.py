"""Which queries of a call are padding: those that somebody has said are. No mask is interpreted.

=================================================  ========================================================
who says it                                        of which queries
=================================================  ========================================================
``sl.watch(attention_mask=)``, ``watch(lengths=)``  of the model's own sequence; not of a decoder's, nor of an
                                                   image beside a text
``attention_mask`` (B, T), 1 at real tokens        of the sequence of the module that was called with it
``decoder_attention_mask`` (B, T)                  of the decoder
``key_padding_mask``, ``src_key_padding_mask``,    torch's, True (or far below zero) at padding; of queries
``tgt_key_padding_mask``                           that look at their own sequence
lengths of nested tensors and packed sequences     what a reader of such calls gives
=================================================  ========================================================

A model may shorten its mask on the way (speech) or lengthen it (text and patches in one sequence). Then what
was said is of another length than the call; where the mask that arrives is the same for all queries, the keys
it hides are the padding. Else :data:`UNKNOWN` is noted and all queries count.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor, nn

from sightline.arguments import check_argument, rule_of
from sightline.look.crossing import looks_elsewhere
from sightline.look.module_calls import Given, generation_mask, given_on_stack
from sightline.look.owners import Owner, uncompiled
from sightline.look.score_inputs import ScoreInputs, StoredRows
from sightline.shapes import Bool, is_tensor

__all__ = ["NONE", "UNKNOWN", "Padding", "PaddingFinder", "UserPadding", "place_padding", "user_padding"]

_LENGTHS = rule_of(Tensor | Sequence[float])

NONE = ""  # nobody has said that anything is padding
UNKNOWN = "unknown"  # somebody has, of a sequence of another length
OWN_LENGTHS = "lengths"  # of a nested tensor, or of packed sequences

_MASKS = ("attention_mask", "pixel_attention_mask")
_DECODERS = "decoder_attention_mask"
_TORCHS = ("key_padding_mask", "src_key_padding_mask", "tgt_key_padding_mask")
_TEXT = ("input_ids", "inputs_embeds", "decoder_input_ids")
_OTHER = ("pixel_values", "pixel_values_videos", "grid_thw", "input_values", "input_features", "query_embeds")
_ENCODED = "encoder_hidden_states"
_TOLD = frozenset((*_MASKS, _DECODERS, *_TORCHS))
_NAMES = _TOLD.union(_TEXT, _OTHER, (_ENCODED,))
_IS_DECODER = re.compile(r"(^|\.)decoder(s|\.|_|$)")
_HIDDEN = -5e3  # models add -1e4, -1e9 or the least number there is to the scores of hidden keys


class UserPadding(NamedTuple):
    """What the user said is padding: by which word, and True at padding for a length T."""

    source: str
    of_length: Callable[[int], Tensor]


class Padding(NamedTuple):
    """What was said of the queries of one call.

    Attributes:
        source: By which word.
        queries: True at padding; None where none is, or where ``fits`` is False.
        fits: Whether what was said has the length of the call.
    """

    source: str
    queries: Bool[Tensor, "B T"] | None
    fits: bool = True


class PaddingFinder:
    """Finds what was said of the calls of a watched model.

    Args:
        model: The model.
        user: What the user said, if anything.
    """

    def __init__(self, model: nn.Module, user: UserPadding | None) -> None:
        self._roots = (model, uncompiled(model))
        self._user = user
        self._known: tuple[Tensor, int, bool] | None = None  # the last mask, its version, and its answer

    def find(self, owner: Owner, sizes: tuple[int, int, int]) -> Padding | None:
        """Return what was said of a call; None if nothing was.

        Args:
            owner: The module that calls.
            sizes: How many items, queries and keys the call has.
        """
        calls, is_rooted = given_on_stack(_NAMES, self._roots)
        if self._user is None:
            told = [(name, x) for call in calls for name, x in call.arguments.items() if name in _TOLD]
            if not told:
                return None
            if all(_is_matrix(x) and not self._has_any(name, x) for name, x in told):
                return Padding(told[0][0], None)
        if is_rooted and calls and calls[-1].module in self._roots:
            mask = calls[-1].arguments.get("attention_mask")
            if mask is not None and not _is_matrix(mask):  # generate has put it into four dimensions
                calls.append(Given(calls[-1].module, {"attention_mask": generation_mask()}))
        found = None if self._user is None else self._of_user(self._user, owner, calls, sizes)
        return self._of_modules(owner, calls, sizes) if found is None else found

    def _of_user(
        self, user: UserPadding, owner: Owner, calls: list[Given], sizes: tuple[int, int, int]
    ) -> Padding | None:
        """Return what the user said, where the call is of the model's own sequence."""
        b, t, s = sizes
        for call in calls:
            if _is_decoder_of(owner, call):
                return None
            if call.module in self._roots:
                continue
            is_image = _has(call.arguments, _OTHER) and not _has(call.arguments, _TEXT)
            if _decodes(call) or (is_image and _has(calls[-1].arguments, _TEXT)):
                return None
        queries = user.of_length(t)
        if tuple(queries.shape) != (b, t):
            return None
        if t == s and looks_elsewhere(owner, s):
            return Padding(user.source, None, fits=False)  # it may be of the keys
        return Padding(user.source, queries)

    def _of_modules(self, owner: Owner, calls: list[Given], sizes: tuple[int, int, int]) -> Padding | None:
        """Return what the innermost module said that was called with a mask of the queries' sequence."""
        is_decoder = False  # whether the queries are those of a decoder inside the calls to come
        n_tokens: int | None = None  # how many tokens the model was given
        unfit: Padding | None = None  # what was said of another length
        for call in calls:
            given = call.arguments
            n_tokens = _length_of_text(given) if n_tokens is None else n_tokens
            reads_encoder = _ENCODED in given
            is_decoder = is_decoder or _is_decoder_of(owner, call)
            of_decoder = is_decoder and not reads_encoder  # the masks of this call are of the encoder
            for name in (_DECODERS,) if of_decoder else _MASKS:
                mask = given.get(name)
                if _is_matrix(mask) and self._marks_tokens(mask):
                    is_own = is_decoder or reads_encoder
                    crosses = not is_own and sizes[1] == sizes[2] and looks_elsewhere(owner, sizes[2])
                    found = self._fitted(name, mask, sizes, n_tokens, may_be_of_keys=bool(crosses))
                    if found.fits:
                        return found
                    unfit = unfit or found
            found_in_torch = self._of_torch(given, owner, sizes, is_decoder=is_decoder)
            if found_in_torch is not None:
                return found_in_torch
            is_decoder = is_decoder or reads_encoder or call.takes("tgt_key_padding_mask")
            if unfit is None and not is_decoder and _begins_alone(given):
                return None
        return unfit

    def _of_torch(
        self,
        given: dict[str, Any],
        owner: Owner,
        sizes: tuple[int, int, int],
        *,
        is_decoder: bool,
    ) -> Padding | None:
        """Return what torch's layers were told, of queries that look at their own sequence."""
        _, t, s = sizes
        for name in _TORCHS:
            mask = given.get(name)
            if not isinstance(mask, Tensor) or mask.dim() > 2 or mask.size(-1) != t:
                continue
            of_keys = name == "key_padding_mask" and (t != s or looks_elsewhere(owner, s))
            if of_keys or (name == "src_key_padding_mask" and is_decoder):
                continue
            hidden = _padding_of(name, mask).reshape(-1, t)
            return Padding(name, hidden if self._has_any(name, mask) else None)
        return None

    def _fitted(
        self,
        name: str,
        mask: Tensor,
        sizes: tuple[int, int, int],
        n_tokens: int | None,
        *,
        may_be_of_keys: bool,
    ) -> Padding:
        """Return what a mask (B, n) says of the queries, which may be the last of those that it marks."""
        b, t, _ = sizes
        if not self._has_any(name, mask):
            return Padding(name, None)
        n = mask.size(1)
        is_step = t < n and n_tokens == t  # the tokens before are in a cache
        if mask.size(0) not in (1, b) or (n != t and not is_step) or may_be_of_keys:
            return Padding(name, None, fits=False)
        return Padding(name, _padding_of(name, mask)[:, n - t :])

    def _marks_tokens(self, mask: Tensor) -> bool:
        """Return whether a mask holds ones and zeros: what is added to scores marks no tokens."""
        if not mask.is_floating_point():
            return True
        return bool(((mask == 0) | (mask == 1)).all())

    def _has_any(self, name: str, mask: Tensor) -> bool:
        """Return whether a mask marks padding; found out once a mask, for a GPU has to be waited for."""
        version = 0 if mask.is_inference() else mask._version  # noqa: SLF001
        known = self._known
        if known is not None and known[0] is mask and known[1] == version:
            return known[2]
        if mask.is_meta or (mask.is_cuda and torch.cuda.is_current_stream_capturing()):
            return True
        self._known = mask, version, bool(_padding_of(name, mask).any())
        return self._known[2]


def place_padding(said: Padding | None, inputs: ScoreInputs) -> tuple[Bool[Tensor, "B T"] | None, str]:
    """Return which queries of a call are padding, and who said so.

    Args:
        said: What was said of the call.
        inputs: The call.
    """
    if inputs.padding is not None and not isinstance(inputs, StoredRows):
        return inputs.padding[:, 0], OWN_LENGTHS
    if said is None:
        return None, NONE
    b, _, t, s = inputs.shape
    if said.fits:
        queries = said.queries
        return None if queries is None else queries.to(inputs.q.device).expand(b, t), said.source
    hidden = _hidden_keys(inputs) if t == s else None
    return (None, UNKNOWN) if hidden is None else (hidden, said.source)


def _hidden_keys(inputs: ScoreInputs) -> Bool[Tensor, "B S"] | None:
    """Return the keys that a mask hides from all queries alike; None where it hides none or differs."""
    b, _, _, s = inputs.shape
    if isinstance(inputs, StoredRows):
        hidden = inputs.q == 0
    elif inputs.modify is not None or inputs.mask.bands or inputs.mask.lengths:
        return None
    else:
        blocks = [~x for x in inputs.mask.allowed] + [x <= _HIDDEN for x in inputs.mask.added]
        hidden = torch.zeros(1, 1, 1, s, dtype=torch.bool, device=inputs.q.device)
        for block in blocks:
            hidden = hidden | block
    first = hidden[:, :1, :1]
    if not bool(hidden.any()) or not bool((hidden == first).all()):
        return None
    return first.reshape(-1, s).expand(b, s)


def user_padding(attention_mask: Tensor | None, lengths: Tensor | Sequence[int] | None) -> UserPadding | None:
    """Return what the user said is padding, from the arguments of ``watch``."""
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
        return UserPadding("watch(attention_mask)", lambda _t: padding)
    if lengths is None:
        return None
    check_argument("lengths", lengths, _LENGTHS)
    counts = torch.as_tensor(lengths)
    if counts.dim() != 1 or counts.is_floating_point():
        raise ValueError(f"lengths must be whole numbers, one for each item, got {lengths!r}")
    return UserPadding("watch(lengths)", lambda t: torch.arange(t, device=counts.device) >= counts[:, None])


def _padding_of(name: str, mask: Tensor) -> Tensor:
    """Return where a mask marks padding: zeros of Hugging Face's, True or far below zero of torch's."""
    if name not in _TORCHS:
        return mask == 0
    return mask if mask.dtype == torch.bool else mask <= _HIDDEN


def _is_matrix(x: Any) -> TypeGuard[Tensor]:
    """Return whether something is a tensor of two dimensions."""
    return isinstance(x, Tensor) and x.dim() == 2


def _has(given: dict[str, Any], names: tuple[str, ...]) -> bool:
    """Return whether a module was called with one of these."""
    return not given.keys().isdisjoint(names)


def _decodes(call: Given) -> bool:
    """Return whether a module reads a sequence of its own while it looks at an encoder's."""
    return call.takes("tgt_key_padding_mask") or _ENCODED in call.arguments


def _is_decoder_of(owner: Owner, call: Given) -> bool:
    """Return whether a call is of the decoder of an encoder and a decoder in one module, by its name."""
    return _IS_DECODER.search(owner.name) is not None and call.takes("decoder_input_ids")


def _length_of_text(given: dict[str, Any]) -> int | None:
    """Return how many tokens a module was called with; None if it was called with none."""
    for name in _TEXT:
        x = given.get(name)
        if isinstance(x, Tensor) and x.dim() > 1:
            return x.size(1)
    return None


def _begins_alone(given: dict[str, Any]) -> bool:
    """Return whether a module began an image or a sound without a mask: what others said is not of it."""
    return _has(given, _OTHER) and not _has(given, _MASKS)
