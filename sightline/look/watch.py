"""``watch``: what any model attends to, while it runs on its own kernels and computes its own output.

One mode below autograd hears every attention kernel and every softmax over scores (``recorder.py``); Python's
stack says which module runs (``owners.py``). Nothing is hooked into the model and no setting of torch's is
changed, so there is nothing to undo, and what can't be read is noted instead of raised.
"""

import contextlib
import fnmatch
import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from sightline.attention.attend import observers
from sightline.look.adapters import AttentionCall, UnreadableError, read_compiled_flex
from sightline.look.compiled_flex import hear_compiled_flex
from sightline.look.fused import FusedCall
from sightline.look.gradients import GradientListener, keep_plainly
from sightline.look.groups import is_integer
from sightline.look.isolate import is_recomputing, isolated
from sightline.look.look import captured_lse
from sightline.look.media_tokens import media_ids, named_input_ids
from sightline.look.owners import Owner, Owners
from sightline.look.padding import padding_of
from sightline.look.recorder import AttentionRecorder
from sightline.look.reorders import Reorders
from sightline.look.score_inputs import StoredRows, Tile
from sightline.look.seen import Seen
from sightline.look.sight import CallShape, KeptInputs, Look, Sight, check_measure, measure_sight
from sightline.look.stream import tile_weights
from sightline.look.tokens import clean_batch
from sightline.look.torch_calls import read_attention_call
from sightline.shapes import Int, Shaped

__all__ = ["watch"]

_EVERYTHING = Look()
_FEW_QUERIES = 8  # with so few it is cheaper to keep their weights than their keys
_FRAMES = 40  # from a product in an attention to the attention itself, compiled code between
_IN_BLOCKS = (
    "its weights were cut into blocks before they met their values, as in banded attention; no column of "
    "them stands for one key"
)
_IN_COMPILED = (
    "it ran in compiled code, where a look meets the kernels alone, not every attention; watch the model "
    "uncompiled"
)


class _Busy(threading.local):
    """Whether a look is being taken in this thread."""

    is_on = False


_BUSY = _Busy()


class _RefusedError(RuntimeError):
    """What must not be watched at all."""


def watch(
    model: nn.Module,
    *,
    layers: str | Callable[[str], bool] | None = None,
    every: int = 1,
    measure: Look = _EVERYTHING,
    keep: bool = False,
    limit: int = 2 << 30,
    attention_mask: Shaped[Tensor, "B T"] | None = None,
    lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
    tokens: Sequence[str] | Sequence[Sequence[str]] | None = None,
    grad: bool = False,
) -> "Watch":
    """See what a model attends to: ``with sl.watch(model) as seen: model(x)``.

    The model keeps its kernels, its output and its gradients, bit for bit, and compiled parts stay compiled.
    Whatever can't be read is listed by ``seen.unseen()``, with one warning at the end of the block; nothing
    is raised inside the model. After the block, or an exception in it, no trace is left.

    Args:
        model: Any module: torch.nn, Hugging Face, timm, your own; eager, or given to ``torch.compile``.
        layers: Which modules to look at: a pattern such as ``"*.3.self_attn"``, or a function of the name.
        every: Measure each n-th call of a module only, for training.
        measure: What to measure. Default: received, entropy and peak. A map, or a top, that is larger
            than a call has queries or keys is as large as they are.
        keep: Hold on to each call's q and k for later maps, rows and tops: as much memory as they take.
        limit: How many bytes of sights to collect; what comes after is not measured, with a warning.
        attention_mask: Which tokens are real (1 or True), for models whose masks don't show it. Queries that
            are padding look at nothing in what is measured.
        lengths: The same, as the number of real tokens of each item, padding on the right.
        tokens: The tokens of the text, or of each text of the batch; they are cleaned of the signs of
            tokenizers, and live with the sights of that length.
        grad: Keep the graph: a loss on a sight trains the model, and after ``backward`` sights have
            ``importance`` and ``relevance``. It holds on to q, k, v and outputs; compiled parts and attention
            that is computed by hand are seen without their graph.

    Example:
        >>> model = nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
        >>> with watch(model) as seen:
        ...     y = model(torch.randn(3, 5, 8))
        >>> seen.names()
        ['self_attn']
        >>> seen["self_attn"].received.shape
        torch.Size([3, 2, 5])
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"watch takes an nn.Module, got {type(model).__name__}; sl.look looks at q, k and v")
    if not is_integer(every) or every < 1:
        raise ValueError(f"every must be a whole number >= 1, got {every!r}; 1 measures each call")
    check_measure(measure)
    if not is_integer(limit) or limit < 0:
        raise ValueError(
            f"limit must be a whole number of bytes >= 0, got {limit!r}; 2 << 30 is two gigabytes"
        )
    padding = _given_padding(attention_mask, lengths)
    texts = clean_batch(tokens)
    return Watch(model, _name_filter(layers), every, measure, keep or grad, limit, padding, texts, grad)


class Watch:
    """The block inside which a model is watched; entering it gives the :class:`Seen`."""

    def __init__(
        self,
        model: nn.Module,
        is_selected: Callable[[str], bool],
        every: int,
        measure: Look,
        keep: bool,
        limit: int,
        padding: Callable[[int], Tensor] | None = None,
        tokens: tuple[tuple[str, ...], ...] = (),
        grad: bool = False,
    ) -> None:
        self._grad = grad
        self._padding, self._tokens = padding, tokens
        self._model, self._is_selected = model, is_selected
        self._every, self._measure, self._keep, self._limit = every, measure, keep, limit
        self._undo: contextlib.ExitStack | None = None
        self._fused_calls: list[FusedCall] | None = None  # those that a call of sl.attention is made of

    def __enter__(self) -> Seen:
        """Start listening."""
        if self._undo is not None:
            raise RuntimeError("this watch is entered already; make another one with sl.watch(model)")
        self._owners = Owners(self._model)
        kinds = {name: type(module).__name__ for name, module in self._owners.attentions.items()}
        self._seen = Seen(type(self._owners.model).__name__, kinds)
        self._seen.tokens = self._tokens
        self._counts: dict[str, int] = {}  # calls of each module so far
        self._reorders = Reorders()
        self._media = {} if self._tokens else media_ids(self._owners.model)
        self._named_ids: Tensor | None = None
        self._skipped: dict[str, list[CallShape]] = {}  # since the last sight of each module
        self._compiled: list[tuple[str, Sight]] = []  # what was seen in compiled code, by its owner
        self._in_compiled: set[str] = set()  # attentions that are inside compiled code
        self._silent = set(self._owners.attentions)  # attentions that have not run yet
        parameters = frozenset(_storages(self._model))
        with contextlib.ExitStack() as undo:
            before = observers.stack
            observers.stack = (*before, self._call_attention)
            undo.callback(setattr, observers, "stack", before)
            undo.enter_context(hear_compiled_flex(self))
            undo.enter_context(AttentionRecorder(self, parameters))
            if self._grad:
                undo.enter_context(GradientListener(self))
            self._undo = undo.pop_all()
        return self._seen

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening, and say what could not be read."""
        assert self._undo is not None  # noqa: S101
        undo, self._undo = self._undo, None
        undo.__exit__(kind, error, trace)
        misnamed = self._owners.misnamed()
        for owner, sight in self._compiled:
            if owner in misnamed:
                self._seen.rename(sight, owner)
                self._seen.mark_unseen(sight.name, _IN_COMPILED)
        self._compiled = []
        for name in sorted(self._in_compiled):
            if not self._seen.was_called(name):
                self._seen.mark_unseen(name, _IN_COMPILED)
        if error is not None:
            return
        if self._seen.full:
            warnings.warn(
                f"sights of more than {self._limit} bytes were collected, later calls are not measured; "
                "raise limit=, or ask for less with every=, layers= or measure=",
                stacklevel=2,
            )
        unseen = self._seen.unseen_warning()
        if unseen is not None:
            warnings.warn(unseen, stacklevel=2)

    # What the recorder tells

    def is_busy(self) -> bool:
        """Whether operators that run now are a look's own."""
        return _BUSY.is_on

    def on_product(self) -> None:
        """Note which attentions run, until all have."""
        self._seen.ran = True
        if not self._silent:
            return
        owner = self._owners.current(3, _FRAMES)
        if owner is None:
            return
        name = owner.name
        if owner.site is not None:
            self._in_compiled |= self._silent.intersection(self._owners.attentions_in(name))
            self._silent -= self._in_compiled
        for attention in [n for n in self._silent if n == name or name.startswith(f"{n}.")]:
            self._silent.discard(attention)
            self._seen.mark_called(attention)

    def on_select(self, func: Any, args: tuple[Any, ...]) -> None:
        """Items were selected, maybe those of a cache."""
        with contextlib.suppress(Exception):  # what is not understood is no cache
            self._reorders.note(func, args)

    def on_blocks(self) -> None:
        """Weights were cut into blocks before they met their values."""
        owner = self._owners.current(3)
        if owner is not None:
            self._seen.mark_dark(owner.name, _IN_BLOCKS)

    def on_call(self, read: Callable[[nn.Module], AttentionCall]) -> None:
        """An attention ran."""
        if self._fused_calls is not None:
            self._keep_lse(read)
            return
        owner = self._owners.current(3)
        if owner is not None:
            self._record(owner, read, isolated)

    def _keep_lse(self, read: Callable[[nn.Module], AttentionCall]) -> None:
        """A kernel inside ``sl.attention``: its log-sum-exp is all that is needed of it."""
        assert self._fused_calls is not None  # noqa: S101
        try:
            call = read(self._model)
            q, k = call.inputs.q, call.inputs.k
            lse = call.lse if call.source == "kernel" else None
            self._fused_calls.append(FusedCall(q, k, k, call.inputs.mask, call.inputs.scale, q, lse))
        except Exception:  # noqa: BLE001 (then it is computed again)
            self._fused_calls = []

    def _call_attention(
        self, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Make a call of ``sl.attention``, which may be computed by several kernels or none."""
        if _BUSY.is_on:
            return function(*args, **options)
        outer = self._fused_calls
        inner: list[FusedCall] = []
        self._fused_calls = inner
        try:
            output = function(*args, **options)
        finally:
            inner, self._fused_calls = self._fused_calls or [], outer
        if outer is not None or is_recomputing():  # a score that attends is part of what it scores for
            return output
        owner = self._owners.current(3)
        if owner is None:
            return output

        def read(_module: nn.Module) -> AttentionCall:
            first: Tensor = output[0] if isinstance(output, tuple) else output
            if first.device.type == "meta" or type(first).__name__ == "FakeTensor":
                raise UnreadableError("it ran on meta or fake tensors, which hold no numbers")
            inputs, lead = read_attention_call(args, options, kept=self._keep)
            return AttentionCall(inputs=inputs, lead=lead, lse=captured_lse(inner, inputs))

        self._record(owner, read, torch.no_grad)
        return output

    def call_with_graph(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        read: Callable[[nn.Module, Any], AttentionCall],
    ) -> Any:
        """Make a call above autograd, and measure it so that the sight keeps the graph."""
        outer = self._fused_calls
        self._fused_calls = []
        try:
            output = function(*args, **kwargs)
        finally:
            self._fused_calls = outer
        if outer is None and not is_recomputing():
            owner = self._owners.current(3)
            if owner is not None:
                self._record(owner, lambda module: read(module, output), keep_plainly)
        return output

    def call_flex(self, call: Callable[[], Any], q: Tensor, k: Tensor, options: dict[str, Any]) -> Any:
        """Make a call of FlexAttention that was compiled on its own."""
        outer = self._fused_calls
        self._fused_calls = []
        try:
            output = call()
        finally:
            self._fused_calls = outer
        if outer is None and not is_recomputing() and not _BUSY.is_on:
            owner = self._owners.current(3)
            if owner is not None:
                read = functools.partial(read_compiled_flex, q, k, options, output)
                self._record(owner._replace(site=None), lambda _module: read(), isolated)
        return output

    # What is made of it

    def _parents(self, name: str, call: AttentionCall) -> Tensor | None:
        """Where the items of a call were in the call before, if a beam search has moved them."""
        b, _, t, s = call.inputs.shape
        return self._reorders.parents(name, b, t, s)

    def _tokens_of(self, call: AttentionCall) -> tuple[tuple[str, ...], ...]:
        """The tokens that a call looks at, where they are as many as its keys."""
        if self._media:
            self._name_input_ids()
        tokens = self._tokens
        longest, s = max(map(len, tokens), default=0), call.inputs.shape[3]
        has_grown = call.inputs.shape[2] < s  # a step after those that have names
        return tokens if longest and (longest == s or (longest < s and has_grown)) else ()

    def _name_input_ids(self) -> None:
        """Take the names of images from the model's own input, where nobody has told tokens."""
        found = named_input_ids(self._media, 4, lambda ids: self._named_ids is ids)
        if found is None:
            return
        self._named_ids, names = found
        if len(names) and len(names[0]) > 1:  # of a single step they are the names of before
            self._tokens = self._seen.tokens = names

    def _record(
        self,
        owner: Owner,
        read: Callable[[nn.Module], AttentionCall],
        context: Callable[[], contextlib.AbstractContextManager[object]],
    ) -> None:
        """Measure a call, if it is one that was asked for; whatever goes wrong is noted, never raised."""
        name = owner.name
        _BUSY.is_on = True
        try:
            self._seen.ran = True
            name = name if owner.site is None else self._owners.name_in_compiled(owner)
            with context():
                sight = self._measure_call(name, owner.module, read)
            if owner.site is not None and sight is not None:
                self._compiled.append((owner.name, sight))
        except _RefusedError:
            raise
        except Exception as error:  # noqa: BLE001 (the model must not feel it)
            self._seen.mark_unseen(name, _reason(error))
        finally:
            _BUSY.is_on = False

    def _measure_call(
        self, name: str, module: nn.Module, read: Callable[[nn.Module], AttentionCall]
    ) -> Sight | None:
        call: AttentionCall | None = None
        if hasattr(module, "self_attn"):  # a whole layer may be one operator
            call = read(module)
            name = f"{name}.{call.child}".lstrip(".") if call.child else name
        self._seen.mark_called(name)
        if not self._is_selected(name):
            self._seen.mark_skipped(name)
            return None
        count = self._counts[name] = self._counts.get(name, -1) + 1
        if count % self._every:
            call = read(module) if call is None else call
            shape = CallShape(call.lead, *call.inputs.shape[2:], self._parents(name, call))
            self._skipped.setdefault(name, []).append(shape)
            self._seen.note_skipped(name, shape)
            return None
        if self._seen.nbytes > self._limit:
            self._seen.full = True
            return None
        if _capturing():
            raise _RefusedError(
                "a watched model can't be captured into a CUDA graph, whose replays write over what was "
                "seen; capture it outside the block, or watch it without the graph"
            )
        call = (read(module) if call is None else call).with_sink(_sinks(module))
        given = None if self._padding is None else self._padding(call.inputs.shape[2])
        padding, known = padding_of(call.inputs, name, given)
        if call.inputs.padding is None or isinstance(call.inputs, StoredRows):
            call = call.with_padding(padding)
        measure = self._measure.clip(*call.inputs.shape[2:])
        with _preserve_rng_state(call):
            sight = measure_sight(
                call.inputs.detached() if call.backward is None else call.inputs,
                measure,
                lead=call.lead,
                lse=call.lse,
                keep=self._keep,
                name=name,
                source=call.source,
                padding=known,
                tokens=self._tokens_of(call),
            )
        if call.backward is not None:
            sight = replace(sight, backward=call.backward)
        elif self._keep and sight.t <= _FEW_QUERIES and call.source != "weights":
            sight = _keep_rows(sight)
        skipped = self._skipped.pop(name, None)
        parents = self._parents(name, call)
        if skipped is not None or parents is not None:
            sight = replace(sight, skipped=tuple(skipped or ()), parents=parents)
        self._seen.add(name, sight)
        return sight


def _sinks(module: nn.Module) -> Tensor | None:
    """The scores of a module's attention sinks, one per head."""
    sinks = getattr(module, "sinks", None)
    return sinks if isinstance(sinks, Tensor) and sinks.is_floating_point() else None


def _reason(error: Exception) -> str:
    if isinstance(error, UnreadableError):
        return str(error)
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}"[:200]


def _preserve_rng_state(call: AttentionCall) -> contextlib.AbstractContextManager[object]:
    """Leave the random numbers as they are where a score draws some: it is asked twice, the model once."""
    if call.inputs.score is None:
        return contextlib.nullcontext()
    device = call.inputs.q.device
    return torch.random.fork_rng([device] if device.type != "cpu" else [], device_type=_accelerator(device))


def _accelerator(device: torch.device) -> str:
    return "cuda" if device.type == "cpu" else device.type


def _keep_rows(sight: Sight) -> Sight:
    """Keep the weights themselves instead of q and k."""
    ((inputs, lse, *_),) = sight.kept
    b, h, t, s = inputs.shape
    tile = Tile(slice(0, b), slice(0, h), (0, t), (0, s))
    rows = StoredRows.of(tile_weights(inputs, tile, lse))
    return sight.with_kept((KeptInputs(rows, torch.zeros_like(lse)),))


def _storages(model: nn.Module) -> list[int]:
    """The memory of a model's parameters."""
    found = []
    for parameter in model.parameters():
        with contextlib.suppress(Exception):  # some have no memory of their own
            found.append(parameter.untyped_storage()._cdata)  # noqa: SLF001
    return found


def _given_padding(
    attention_mask: Tensor | None, lengths: Tensor | Sequence[int] | None
) -> Callable[[int], Tensor] | None:
    """What the user said is padding, as a function of the length T; True at padding."""
    if attention_mask is not None and lengths is not None:
        raise ValueError("say what is padding with attention_mask= or lengths=, got both; one is enough")
    if attention_mask is not None:
        if attention_mask.dim() != 2:
            raise ValueError(
                f"attention_mask must be a tensor (B, T), True or 1 at real tokens, got the shape "
                f"{tuple(attention_mask.shape)}"
            )
        padding = attention_mask == 0
        return lambda _t: padding
    if lengths is None:
        return None
    counts = torch.as_tensor(lengths)
    if counts.dim() != 1 or counts.is_floating_point():
        raise ValueError(f"lengths must be whole numbers, one for each item, got {lengths!r}")
    return lambda t: torch.arange(t, device=counts.device) >= counts[:, None]


def _capturing() -> bool:
    """Whether a CUDA graph is being captured; a torch without CUDA can't be asked."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _name_filter(layers: str | Callable[[str], bool] | None) -> Callable[[str], bool]:
    if layers is None:
        return lambda _name: True
    if isinstance(layers, str):
        return lambda name: fnmatch.fnmatchcase(name, layers)
    if callable(layers):
        return layers
    raise TypeError(f"layers must be a pattern or a function of a module's name, got {type(layers).__name__}")
