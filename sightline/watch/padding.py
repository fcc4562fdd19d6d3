"""Which queries of a call are padding: those that somebody has said are.

================================================  =========================================================
where it is said                                  of which queries
================================================  =========================================================
``sl.watch(attention_mask=)``, ``(lengths=)``      those of the model's own sequence; of an encoder and a
                                                  decoder the encoder's
``attention_mask`` (B, T), 1 at real tokens       those of the sequence of the module that was called with it,
                                                  the watched model or one inside it
``decoder_attention_mask`` (B, T)                 the decoder's
``pixel_attention_mask`` (B, T)                   patches, of a module that was given no text
``key_padding_mask``, ``src_key_padding_mask``,   torch's, True or far below zero at padding: queries that
``tgt_key_padding_mask``                          attend to their own sequence
lengths of nested tensors and packed sequences    what the reader of such calls returns
================================================  =========================================================

The pattern of a mask says nothing. Only where a model was called with a mask that marks padding, and makes
one of another length of it (speech is shortened, patches follow a text), the mask that arrives is compared
with what was said: :func:`_placed`. What can't be placed is :data:`UNKNOWN_PADDING`, and all queries count.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor, nn

from sightline.look.calls import NO_PADDING, UNKNOWN_PADDING
from sightline.look.inputs import PrecomputedWeights, ScoreInputs
from sightline.look.module_names import is_cross_name
from sightline.messages import format_value
from sightline.shapes import Bool, is_tensor
from sightline.watch.crossing import is_cross_attention
from sightline.watch.module_calls import Given, generation_mask, given_on_stack
from sightline.watch.modules import Owner, uncompiled

__all__ = ["Padding", "PaddingFinder", "UserPadding", "place_padding", "user_padding"]


OWN_LENGTHS = "lengths"  # of a nested tensor, or of packed sequences

_TOKEN_MASKS = ("attention_mask", "pixel_attention_mask")
_DECODER_MASK = "decoder_attention_mask"
_VISUAL_MASK = "visual_attention_mask"
_KEY_MASKS = ("key_padding_mask", "src_key_padding_mask", "tgt_key_padding_mask")
_TEXT = ("input_ids", "inputs_embeds")
_MEDIA = ("pixel_values", "pixel_values_videos", "grid_thw", "input_values", "input_features", "query_embeds")
_ENCODED, _CACHE = "encoder_hidden_states", "past_key_values"
_MASKS = frozenset((*_TOKEN_MASKS, _DECODER_MASK, *_KEY_MASKS))
_NAMES = _MASKS.union(_TEXT, _MEDIA, (_ENCODED, _CACHE, "decoder_input_ids"))
_IS_DECODER = re.compile(r"(^|\.)decoder(s|\.|_|$)")
_HIDDEN = -5e3  # models add -1e4, -1e9 or the least number there is to the scores of hidden keys
_FEW = 8  # masks whose answers are remembered


class UserPadding(NamedTuple):
    """What the user said is padding: by which argument, the padding of a length T, and the least such T."""

    source: str
    of_length: Callable[[int], Tensor]
    at_least: int
    shape: str


class Padding(NamedTuple):
    """What was said of the queries of one call.

    Attributes:
        source: Which argument said it.
        queries: True at padding, (B or 1, T); None where none is, or where it is not known which.
        said: What is to be compared with the mask of the call, (B, n); None where nothing is.
        is_known: Whether it is known which queries are padding.
    """

    source: str
    queries: Bool[Tensor, "b T"] | None
    said: Bool[Tensor, "B n"] | None = None
    is_known: bool = True


class _Call(NamedTuple):
    """The module that calls, and how many items, queries and keys the call has."""

    owner: Owner
    b: int
    t: int
    s: int

    @property
    def may_cross(self) -> bool:
        """Return whether the call may look from one sequence into another of its length."""
        return self.t == self.s and bool(is_cross_attention(self.owner, self.s))


class PaddingFinder:
    """Finds what was said of the calls of a watched model.

    Args:
        model: The model.
        user: What the user said, if anything.
    """

    def __init__(self, model: nn.Module, user: UserPadding | None) -> None:
        self._roots = (model, uncompiled(model))
        self._user = user
        self._known: dict[tuple[int, str], tuple[Tensor, int, bool]] = {}  # by mask and name
        self.n_fitted = 0  # calls that what the user said was of

    def find(self, owner: Owner, sizes: tuple[int, int, int]) -> Padding | None:
        """Return what was said of a call; None if nothing was.

        Args:
            owner: The module that calls.
            sizes: How many items, queries and keys the call has.
        """
        calls, is_rooted = given_on_stack(_NAMES, self._roots)
        if self._user is None:
            masks = [(name, x) for given in calls for name, x in given.arguments.items() if name in _MASKS]
            if not masks:
                return None
            if all(_is_matrix(x) and not self._has_any(name, x) for name, x in masks):
                return Padding(masks[0][0], None)
        root = calls[-1] if is_rooted and calls and calls[-1].module in self._roots else None
        mask = None if root is None else root.arguments.get("attention_mask")
        if root is not None and mask is not None and not _is_matrix(mask):
            # generate has put its mask into four dimensions
            calls.append(Given(root.module, {"attention_mask": generation_mask()}))
        call = _Call(owner, *sizes)
        found = None if self._user is None else self._of_user(self._user, call, calls, root)
        return self._of_modules(call, calls) if found is None else found

    def _of_user(
        self, user: UserPadding, call: _Call, calls: list[Given], root: Given | None
    ) -> Padding | None:
        """Return what the user said, where the call is of the model's own sequence."""
        if root is not None:
            inside = [given for given in calls if given.module is not root.module]
            is_decoder = any(map(_decodes, inside)) or _is_decoder_of(call.owner, root)
            if is_decoder and _encodes_text(root):
                return None
            is_media = any(_has(x.arguments, _MEDIA) and not _has(x.arguments, _TEXT) for x in inside)
            if is_media and _has(root.arguments, _TEXT):
                return None  # an image next to the text
        queries = user.of_length(call.t)
        if call.t < user.at_least or queries.size(0) not in (1, call.b) or queries.size(1) != call.t:
            return None
        self.n_fitted += 1
        if call.may_cross and not is_cross_name(call.owner.name):
            return Padding(user.source, None, is_known=False)  # it may be of the keys
        return None if call.may_cross else Padding(user.source, queries)

    def _of_modules(self, call: _Call, calls: list[Given]) -> Padding | None:
        """Return what the innermost module said that was called with a mask of the queries' sequence."""
        is_decoder = False  # whether the queries are those of a decoder inside the calls to come
        cache: Any = None
        doubtful: Padding | None = None  # what may be said of the queries
        for given in calls:
            arguments = given.arguments
            cache = arguments.get(_CACHE) if cache is None else cache
            is_decoder = is_decoder or _is_decoder_of(call.owner, given)
            reads_encoder = _ENCODED in arguments and given.module is not call.owner.module
            of_encoder = is_decoder and not reads_encoder  # whose masks these are
            for name in (_DECODER_MASK,) if of_encoder else _TOKEN_MASKS:
                mask = arguments.get(name)
                is_of_text = name == "pixel_attention_mask" and _has(arguments, _TEXT)
                if is_of_text or not _is_matrix(mask) or not _marks_tokens(mask):
                    continue
                found = self._of_mask(name, mask, call, cache, is_own=is_decoder or reads_encoder)
                if found is not None and found.queries is not None and given.takes(_VISUAL_MASK):
                    # the text, or as many visual tokens beside it
                    found = Padding(name, None, said=_padding_of(name, mask), is_known=False)
                if found is not None and found.is_known and found.said is None:
                    return found
                doubtful = doubtful or found
            found = self._of_key_mask(arguments, call, is_decoder=is_decoder)
            if found is not None and found.is_known:
                return found
            doubtful = doubtful or found
            is_decoder = is_decoder or reads_encoder or given.takes("tgt_key_padding_mask")
            of_text = _has(arguments, _TEXT) and _has(arguments, _MASKS)
            if doubtful is None and not is_decoder and _has(arguments, _MEDIA) and not of_text:
                return None  # an image, or a sound, begins here: what others say is not of it
        return doubtful

    def _of_mask(self, name: str, mask: Tensor, call: _Call, cache: Any, *, is_own: bool) -> Padding | None:
        """Return what a mask (B, n) says of the queries; None if nothing.

        Args:
            name: Its name.
            mask: The mask.
            call: The call.
            cache: What the model keeps of the tokens before, if anything.
            is_own: Whether it is known to be of the queries, not of keys.
        """
        b, t, s, n = call.b, call.t, call.s, mask.size(1)
        if not self._has_any(name, mask):
            return Padding(name, None)
        padding = _padding_of(name, mask)
        end = n if n == t else _n_cached(cache, n)
        if mask.size(0) in (1, b) and end is not None and t <= end <= n:
            if call.may_cross and not is_own:
                return None if is_cross_name(call.owner.name) else Padding(name, None, is_known=False)
            return Padding(name, padding[:, end - t : end])
        if n == s != t:
            return None  # it is of the keys
        return Padding(name, None, said=padding if t == s and mask.size(0) == b else None, is_known=False)

    def _of_key_mask(self, arguments: dict[str, Any], call: _Call, *, is_decoder: bool) -> Padding | None:
        """Return what torch's masks say of queries that attend to their own sequence; None if nothing."""
        b, t, s = call.b, call.t, call.s
        for name in _KEY_MASKS:
            mask = arguments.get(name)
            if not isinstance(mask, Tensor) or mask.dim() > 2 or mask.size(-1) != t:
                continue
            if name == "src_key_padding_mask" and is_decoder:
                continue
            if not self._has_any(name, mask):
                return Padding(name, None)
            of_keys = name == "key_padding_mask" and (
                not t <= s <= t + 2 or bool(is_cross_attention(call.owner, s))
            )
            if of_keys and (t != s or is_cross_name(call.owner.name)):
                continue
            hidden = _padding_of(name, mask).reshape(-1, t)
            if of_keys or hidden.size(0) not in (1, b):
                return Padding(name, None, is_known=False)
            return Padding(name, hidden)
        return None

    def _has_any(self, name: str, mask: Tensor) -> bool:
        """Return whether a mask marks padding; found out once a mask, for a GPU has to be waited for."""
        if mask.is_meta or (mask.is_cuda and torch.cuda.is_current_stream_capturing()):
            return True
        if mask.is_inference():  # nobody counts who writes to it
            return bool(_padding_of(name, mask).any())
        key, version = (id(mask), name), mask._version  # noqa: SLF001
        known = self._known.get(key)
        if known is None or known[0] is not mask or known[1] != version:
            if len(self._known) >= _FEW:
                self._known.clear()
            known = self._known[key] = mask, version, bool(_padding_of(name, mask).any())
        return known[2]


def place_padding(said: Padding | None, inputs: ScoreInputs) -> tuple[Bool[Tensor, "B T"] | None, str]:
    """Return which queries of a call are padding, and where that was said.

    Args:
        said: What was said of the call.
        inputs: The call.
    """
    b, _, t, _ = inputs.shape
    if inputs.padding is not None:
        return inputs.padding[:, 0], OWN_LENGTHS if said is None else said.source
    if said is None:
        return None, NO_PADDING
    if said.is_known:
        queries = said.queries
        return None if queries is None else queries.to(inputs.q.device).expand(b, t), said.source
    hidden = None if said.said is None else _placed(said.said.to(inputs.q.device), inputs)
    return (None, UNKNOWN_PADDING) if hidden is None else (hidden, said.source)


def _placed(said: Bool[Tensor, "B n"], inputs: ScoreInputs) -> Bool[Tensor, "B T"] | None:
    """Return where padding that was said of n tokens lies among T = S others; None if it is not clear.

    It is where the mask of the call hides the same keys from all queries of an item, and these are the first
    or the last ones as the padding was (the sequence was shortened), or the same ones next to others.
    """
    hidden = _hidden_keys(inputs)
    if hidden is None or hidden.size(0) != said.size(0):
        return None
    n, t = said.size(1), hidden.size(1)
    if n < t:
        is_same = torch.equal(hidden[:, :n], said) or torch.equal(hidden[:, t - n :], said)
        return hidden if is_same else None
    is_last = all(bool((x.cummax(1).values == x).all()) for x in (said, hidden))
    is_first = all(bool((x.flip(1).cummax(1).values == x.flip(1)).all()) for x in (said, hidden))
    is_of_items = bool((hidden.any(1) <= said.any(1)).all())
    return hidden if (is_last or is_first) and is_of_items else None


def _hidden_keys(inputs: ScoreInputs) -> Bool[Tensor, "B S"] | None:
    """Return the keys that the mask of a call hides from all queries of an item; None if it differs."""
    b, _, _, s = inputs.shape
    if isinstance(inputs, PrecomputedWeights):
        hidden = inputs.q == 0
    elif inputs.modify is not None or inputs.mask.bands or inputs.mask.lengths:
        return None
    else:
        hidden = torch.zeros(1, 1, 1, s, dtype=torch.bool, device=inputs.q.device)
        for block in (*(~x for x in inputs.mask.allowed), *(x <= _HIDDEN for x in inputs.mask.added)):
            hidden = hidden | block
    first = hidden[:, :1, :1]
    return first.reshape(-1, s).expand(b, s) if bool((hidden == first).all()) else None


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
        if attention_mask.numel() and attention_mask.dtype != torch.bool and bool((attention_mask < 0).any()):
            raise ValueError(
                "attention_mask must be 1 at real tokens and 0 at padding, got "
                f"{attention_mask.min().item()}; of a mask that is added to the scores give mask == 0"
            )
        padding = attention_mask == 0
        b, t = padding.shape
        return UserPadding("watch(attention_mask)", lambda _t: padding, t, f"B={b} T={t}")
    if lengths is None:
        return None
    sentence = f"lengths must be whole numbers, one for each item, got {format_value(lengths)}"
    try:
        counts = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(sentence) from None
    is_whole = not counts.is_floating_point() and counts.dtype != torch.bool
    if counts.dim() != 1 or not is_whole or bool((counts < 0).any()):
        raise ValueError(sentence)
    return UserPadding(
        "watch(lengths)",
        lambda t: torch.arange(t, device=counts.device) >= counts[:, None],
        int(counts.max()) if counts.numel() else 0,
        f"B={len(counts)} and at least T={int(counts.max()) if counts.numel() else 0}",
    )


def _padding_of(name: str, mask: Tensor) -> Tensor:
    """Return where a mask marks padding: zeros of Hugging Face's, True or far below zero of torch's."""
    if name not in _KEY_MASKS:
        return mask == 0
    return mask if mask.dtype == torch.bool else mask <= _HIDDEN


def _marks_tokens(mask: Tensor) -> bool:
    """Return whether a mask holds ones and zeros: what is added to scores marks no tokens."""
    if not mask.is_floating_point():
        return True
    return bool(((mask == 0) | (mask == 1)).all()) and bool((mask == 1).any())


def _n_cached(cache: Any, n: int) -> int | None:
    """Return how many tokens a cache holds, those of the call included; None if there is none.

    Args:
        cache: A cache of Hugging Face, or what older models keep of each layer.
        n: How many tokens the mask marks.
    """
    if cache is None:
        return None
    ask = getattr(cache, "get_seq_length", None)
    try:
        return n if ask is None else int(ask())
    except Exception:  # noqa: BLE001 (another library's)
        return None


def _is_matrix(x: Any) -> TypeGuard[Tensor]:
    """Return whether something is a tensor of two dimensions."""
    return isinstance(x, Tensor) and x.dim() == 2


def _has(arguments: dict[str, Any], names: Sequence[str] | frozenset[str]) -> bool:
    """Return whether a module was called with one of these."""
    return not arguments.keys().isdisjoint(names)


def _decodes(given: Given) -> bool:
    """Return whether a module reads a sequence of its own while it attends to an encoder's."""
    return given.takes("tgt_key_padding_mask") or _ENCODED in given.arguments


def _encodes_text(root: Given) -> bool:
    """Return whether a model has an encoder of a sequence that a mask may be of, and a decoder of another."""
    if root.takes("src_key_padding_mask") and root.takes("tgt_key_padding_mask"):
        return True
    return root.takes("decoder_input_ids") and not _has(root.arguments, ("pixel_values",))


def _is_decoder_of(owner: Owner, given: Given) -> bool:
    """Return whether a call is of the decoder of a module that has an encoder too, by its name."""
    return _IS_DECODER.search(owner.name) is not None and given.takes("decoder_input_ids")
