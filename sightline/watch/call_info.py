"""What is known of a call beside its numbers: its tokens, where its items came from, the calls around it.

It is noted while the model runs, since a call may be measured later (``waiting.py``).
"""

import contextlib
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from sightline.look.calls import CallShape
from sightline.look.recording import Recording
from sightline.look.sharded.axes import Shard
from sightline.look.sight import Sight
from sightline.shapes import Int
from sightline.watch.beams import BeamReorderTracker
from sightline.watch.intercept import track_beam_reorders
from sightline.watch.media_tokens import media_ids, named_input_ids
from sightline.watch.readers.sdpa import AttentionCall

__all__ = ["CallInfo", "CallTracker"]

_Tokens = tuple[tuple[str, ...], ...]


class CallInfo:
    """The note of one call; the attributes are those of its :class:`Sight`.

    Attributes:
        waits: Whether it has no sight yet.
    """

    after: CallShape | None = None
    shard: Shard | None = None
    waits = False

    def __init__(self, tokens: _Tokens, skipped: tuple[CallShape, ...], parents: Tensor | None) -> None:
        self.tokens, self.skipped, self.parents = tokens, skipped, parents

    def onto(self, sight: Sight) -> Sight:
        """The sight of the call with what was noted."""
        self.waits = False
        if self.shard is not None:
            sight = replace(sight, shard=self.shard)
        if not self.tokens and not self.skipped and self.parents is None and self.after is None:
            return sight
        return replace(
            sight, tokens=self.tokens, skipped=self.skipped, parents=self.parents, after=self.after
        )


class CallTracker:
    """Takes the notes of a watched model's calls.

    Args:
        model: The model, without wrappers.
        seen: Where its sights are collected.
        tokens: What the user said its tokens are, if anything.
    """

    def __init__(self, model: nn.Module, seen: Recording, tokens: _Tokens) -> None:
        self._seen, self._tokens = seen, tokens
        self._media = {} if tokens else media_ids(model)
        self._named_ids: Tensor | None = None
        self._reorders = BeamReorderTracker()
        self._skipped: dict[str, list[CallShape]] = {}  # since the last sight of each module
        self._last: dict[str, CallInfo] = {}  # of the last call of each module that was measured
        self._follows = False  # whether a cache may be put into another order

    def on_select(self, func: Any, args: tuple[Any, ...]) -> None:
        """Items are selected, maybe those of a cache."""
        if self._follows:
            with contextlib.suppress(Exception):  # what is not understood is no cache
                self._reorders.note(func, args)

    def take(self, name: str, b: int, t: int, s: int, *, is_trained: bool) -> CallInfo:
        """The note of a call that is measured, with B items, T queries and S keys."""
        tokens = self._tokens_of(t, s) if self._tokens or self._media else ()
        skipped = tuple(self._skipped.pop(name, ())) if self._skipped else ()
        if self._follows or is_trained:
            parents = self._reorders.parents(name, b, t, s)
        else:
            parents = self._parents(name, b, t, s, is_trained)
        note = self._last[name] = CallInfo(tokens, skipped, parents)
        return note

    def skip(self, name: str, call: AttentionCall) -> None:
        """Note a call that is not measured, which may tell what became of the one before."""
        b, _, t, s = call.inputs.shape
        shape = CallShape(call.lead, t, s, self._parents(name, b, t, s, call.inputs.q.requires_grad))
        self._skipped.setdefault(name, []).append(shape)
        last = self._last.get(name)
        if last is None or last.after is not None:
            return
        last.after = shape
        if not last.waits:
            self._seen.note_skipped(name, shape)

    def _parents(self, name: str, b: int, t: int, s: int, is_trained: bool) -> Int[Tensor, " B"] | None:
        """Where the items of a call were in the call before, if a beam search has moved them."""
        if not self._follows and not is_trained:  # what is trained searches no beams
            self._follows = True
            track_beam_reorders()
        return self._reorders.parents(name, b, t, s)

    def _tokens_of(self, t: int, s: int) -> _Tokens:
        """The tokens that a call looks at, where they are as many as its keys."""
        if self._media:
            self._name_input_ids()
        longest = max(map(len, self._tokens), default=0)
        has_grown = t < s  # a step after those that have names
        return self._tokens if longest and (longest == s or (longest < s and has_grown)) else ()

    def _name_input_ids(self) -> None:
        """Take the names of images from the model's own input, where nobody has told tokens."""
        found = named_input_ids(self._media, is_known=lambda ids: self._named_ids is ids)
        if found is None:
            return
        self._named_ids, names = found
        if len(names) and len(names[0]) > 1:  # of a single step they are the names of before
            self._tokens = self._seen.tokens = names
