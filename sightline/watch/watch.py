"""``watch``: what any model attends to, while it runs on its own kernels and computes its own output.

The operators that attention is made of are heard where they are called (``listen.py``); Python's stack says
which module runs (``owners.py``). Nothing is hooked into the model and no setting of torch's is changed, so
there is nothing to undo, and what can't be read is noted instead of raised.
"""

import contextlib
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sightline.attention.observers import observe
from sightline.look.asked import check_measure
from sightline.look.groups import is_integer
from sightline.look.isolate import isolated
from sightline.look.measure import Measure
from sightline.look.recording import Recording
from sightline.look.recording_text import closing_words, seen_sizes
from sightline.look.request import Look
from sightline.look.score_inputs import captured_lse
from sightline.look.sharded.placements import HeadFinder, may_be_sharded
from sightline.look.sight import Sight
from sightline.messages import check_bool
from sightline.shapes import Int, Shaped
from sightline.watch.call_info import CallTracker
from sightline.watch.compiled_flex import intercept_compiled_flex
from sightline.watch.gradients import capture_graph, disable_saved_tensor_hooks
from sightline.watch.intercept import listening, register_flex
from sightline.watch.kernel_calls import KernelCall
from sightline.watch.listeners import listeners, silence
from sightline.watch.modules import ModuleResolver, Owner, sinks_of, uncompiled
from sightline.watch.names import name_filter
from sightline.watch.padding import PaddingFinder, user_padding
from sightline.watch.readers.ours import check_numbers, read_attention_call
from sightline.watch.readers.sdpa import AttentionCall, read_compiled_flex
from sightline.watch.recorder import AttentionRecorder, read_kernel
from sightline.watch.session import CallSession, RefusedError, WatchOptions, reason_of
from sightline.watch.tokens import clean_batch

__all__ = ["watch"]

_EVERYTHING = Look()
_FRAMES = 40  # from a product in an attention to the attention itself, compiled code between
_IN_COMPILED = (
    "it ran in compiled code, where a look meets the kernels alone, not every attention; watch the model "
    "uncompiled"
)
_IN_FUNCTION = (
    "the compiled function {} ran in it, whose code meets no operator that a look could hear; compile "
    "flex_attention alone, as torch.compile(flex_attention), or watch the model without that compilation"
)
_UNFIT = (
    "{} is of {}, and no attention that ran has such queries ({}): nothing was left out as padding; give the "
    "mask of the model's own sequence"
)
_LATE_FLEX = "FlexAttention was imported inside the block, and is heard from the next block on"


def watch(
    model: nn.Module,
    *,
    layers: str | Callable[[str], bool] | None = None,
    every: int = 1,
    measure: Look | Sequence[Measure] = _EVERYTHING,
    keep: bool | Literal["cpu"] = False,
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
            ``"cpu"`` keeps them in main memory and brings those of one call back for each question.
        limit: How many bytes of sights to collect; what comes after is not measured, with a warning.
        attention_mask: Which tokens are real (1 or True), where the model is not called with an
            ``attention_mask`` (B, T) or a ``key_padding_mask`` of its own. Statistics of queries that are
            padding are NaN, and sums leave them out. No mask is interpreted: where nobody says what is
            padding, all queries count.
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
    asked = check_measure(measure)
    if not is_integer(limit) or limit < 0:
        raise ValueError(
            f"limit must be a whole number of bytes >= 0, got {limit!r}; 2 << 30 is two gigabytes"
        )
    given: Any = keep  # whatever it is: an array has no != of its own
    if not isinstance(given, bool) and not (isinstance(given, str) and given == "cpu"):
        raise ValueError(
            f'keep must be True, False or "cpu", got {keep!r}; "cpu" keeps q and k in main memory'
        )
    check_bool("grad", grad)
    if keep == "cpu" and grad:
        raise ValueError('keep="cpu" can\'t go with grad=True, whose graph holds q and k; leave out keep')
    options = WatchOptions(
        is_selected=name_filter(layers),
        every=every,
        measure=asked,
        keep=bool(keep) or grad,
        in_main_memory=keep == "cpu",
        limit=limit,
        padding=user_padding(attention_mask, lengths),
        tokens=clean_batch(tokens),
        grad=grad,
    )
    return Watch(model, options)


class Watch:
    """The block inside which a model is watched; entering it gives the :class:`Recording`."""

    def __init__(self, model: nn.Module, options: WatchOptions) -> None:
        self._model, self._options = model, options
        self._undo: contextlib.ExitStack | None = None
        self._lses: list[Tensor | None] | None = None  # of the kernels that a call of sl.attention is made of

    def __enter__(self) -> Recording:
        """Start listening."""
        if self._undo is not None:
            raise RuntimeError("this watch is entered already; make another one with sl.watch(model)")
        self._owners = ModuleResolver(self._model)
        self._seen = Recording(self._owners.kind, self._owners.attentions)
        self._seen.tokens = self._options.tokens
        self._notes = CallTracker(uncompiled(self._model), self._seen, self._options.tokens)
        self._measurer = CallSession(self._seen, self._options, self._notes)
        by_kernels = self._owners.structure.by_kernels
        self._recorder = AttentionRecorder(self, self._owners.pointers, by_kernels=by_kernels)
        self._compiled: list[tuple[str, Sight]] = []  # what was seen in compiled code, by its owner
        self._in_compiled: set[str] = set()  # attentions that are inside compiled code
        self._dark: dict[str, str] = {}  # modules that attended in a way that can't be read, and why
        self._find_heads = HeadFinder() if may_be_sharded() else None  # of tensor-parallel modules
        self._padding = PaddingFinder(self._model, self._options.padding)
        self._silent = set(self._owners.attentions)  # attentions that have not run yet
        with contextlib.ExitStack() as undo:
            undo.callback(observe(self._call_attention))
            undo.enter_context(intercept_compiled_flex(self))
            undo.enter_context(listening(self._recorder))
            if self._options.grad:
                undo.enter_context(capture_graph(self))
            self._undo = undo.pop_all()
        return self._seen

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening, and say what could not be read."""
        assert self._undo is not None  # noqa: S101
        undo, self._undo = self._undo, None
        undo.__exit__(kind, error, trace)
        try:
            self._finish(error)
        finally:
            # They hold the watch and the last mask: what was seen must not wait for a garbage collection.
            del self._recorder, self._padding

    def _finish(self, error: BaseException | None) -> None:
        """Measure what waits, and warn of what could not be read."""
        self._measurer.finish(failed=error is not None)
        self._name_compiled()
        for name, reason in self._dark.items():
            self._seen.take_back(name, reason)
        if register_flex():
            self._seen.mark_dark("", _LATE_FLEX)
        self._owners.structure.by_kernels &= not self._recorder.n_softmaxes
        if error is not None:
            return
        for sentence in closing_words(self._seen, self._options.limit, self._owners):
            warnings.warn(sentence, stacklevel=3)
        user = self._options.padding
        if user is not None and not self._padding.n_fitted and len(self._seen):
            warnings.warn(_UNFIT.format(user.source, user.shape, seen_sizes(self._seen)), stacklevel=3)
        unseen = self._seen.unseen_warning()
        if unseen is not None:
            warnings.warn(unseen, stacklevel=3)
        elif not self._silent and self._recorder.n_kernels and not self._recorder.n_softmaxes:
            self._owners.structure.by_kernels = True

    def _name_compiled(self) -> None:
        """Take back names that compiled code can't be sure of, and note what it has hidden."""
        if not self._compiled and not self._in_compiled:
            return
        misnamed = self._owners.misnamed()
        for owner, sight in self._compiled:
            if owner in misnamed:
                self._seen.rename(sight, owner)
                self._seen.mark_unseen(sight.name, _IN_COMPILED)
        self._compiled = []
        for name in sorted(self._in_compiled):
            if not self._seen.was_called(name):
                self._seen.mark_unseen(name, _IN_COMPILED)

    # What the recorder tells

    def on_run(self, attentions: tuple[str, ...] | None) -> None:
        """Note which attentions run, until all have."""
        self._seen.ran = True
        if not self._silent or (attentions is not None and self._silent.isdisjoint(attentions)):
            return
        owner = self._owners.current(limit=_FRAMES)
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
        """Items are selected, maybe those of a cache."""
        self._notes.on_select(func, args)

    def on_dark(self, reason: str) -> None:
        """Something attended, and can't be measured."""
        owner = self._owners.current()
        if owner is not None:
            self._dark.setdefault(owner.name, reason)

    def on_kernel(self, heard: KernelCall) -> None:
        """An attention kernel ran."""
        if self._lses is not None:
            self._keep_lse(lambda _module: read_kernel(heard))
            return
        owner = self._owners.current(depth=4)  # above the recorder, and the function that heard it
        if owner is not None:
            kernel = heard.kernel
            if kernel.is_layer and owner.is_layer:  # whose attention is no module that runs
                owner = owner.attention()
                self._silent.discard(owner.name)
            fused = heard if kernel.is_fused else heard.fused
            self._record(owner, lambda _module: read_kernel(heard), isolated, fused)

    def on_call(self, read: Callable[[nn.Module], AttentionCall]) -> None:
        """An attention was computed by hand."""
        if self._lses is not None:
            self._keep_lse(read)
            return
        owner = self._owners.current(depth=3)
        if owner is not None:
            self._record(owner, read, isolated)

    def _keep_lse(self, read: Callable[[nn.Module], AttentionCall]) -> None:
        """A kernel inside ``sl.attention``: its log-sum-exp is all that is needed of it."""
        assert self._lses is not None  # noqa: S101
        try:
            with isolated():
                call = read(self._model)
            self._lses.append(call.lse if call.source == "kernel" else None)
        except Exception:  # noqa: BLE001 (then it is computed again)
            self._lses = []

    def _call_attention(
        self, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Make a call of ``sl.attention``, which may be computed by several kernels or none."""
        if self._recorder not in listeners():
            return function(*args, **options)
        output, inner = self._call_apart(function, args, options)
        owner = None if self._lses is not None else self._owners.current()
        if owner is None:  # or a score that attends, which is part of what it scores for
            return output

        def read(_module: nn.Module) -> AttentionCall:
            check_numbers(output)
            inputs, lead = read_attention_call(args, options, kept=self._options.keep)
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
        output, _ = self._call_apart(function, args, kwargs)
        if self._lses is None and self._recorder in listeners():
            owner = self._owners.current()
            if owner is not None:

                def read_numbers(module: nn.Module) -> AttentionCall:
                    check_numbers(output)
                    return read(module, output)

                self._record(owner, read_numbers, disable_saved_tensor_hooks)
        return output

    def call_flex(self, call: Callable[[], Any], q: Tensor, k: Tensor, options: dict[str, Any]) -> Any:
        """Make a call of FlexAttention that was compiled on its own."""
        output = call()
        if self._lses is None and self._recorder in listeners():
            owner = self._owners.current()
            if owner is not None:
                read = functools.partial(read_compiled_flex, q, k, options, output)
                self._record(owner._replace(site=None), lambda _module: read(), isolated)
        return output

    def on_compiled(self, function: str) -> None:
        """A compiled function has run, which may have attended."""
        owner = self._owners.current()
        if owner is None:
            return
        for name in self._owners.attentions:
            if owner.name == name or owner.name.startswith(f"{name}."):
                self._seen.explain_silence(name, _IN_FUNCTION.format(function))

    def _call_apart(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, list[Tensor | None]]:
        """Make a call whose kernels are parts of it: what it gives, and the kernels."""
        outer, self._lses = self._lses, []
        try:
            output = function(*args, **kwargs)
        finally:
            inner, self._lses = self._lses or [], outer
        return output, inner

    def _record(
        self,
        owner: Owner,
        read: Callable[[nn.Module], AttentionCall],
        context: Callable[[], contextlib.AbstractContextManager[object]],
        fused: KernelCall | None = None,
    ) -> None:
        """Measure a call, if it is one that was asked for; whatever goes wrong is noted, never raised.

        Args:
            owner: The module that runs.
            read: Reads the call.
            context: What it is read and measured in.
            fused: The call of one of torch's own kernels that it is, or is made of: such a call may be read
                later.
        """
        name, is_eager = owner.name, owner.site is None
        try:
            self._seen.ran = True
            name = name if is_eager else self._owners.name_in_compiled(owner)
            plan = self._measurer.plan(name)
            if plan == "ignore":
                return
            if fused is not None and is_eager and plan == "measure" and not self._options.keep:
                facts = fused.kernel.facts(fused.args, fused.kwargs)
                (b, _, t, _), s = fused.args[0].shape, fused.args[1].size(2)
                said = self._padding.find(owner, (b, t, s))
                shard = None if self._find_heads is None else self._find_heads(owner.module, fused.args[0])
                if self._measurer.put_by(name, fused, facts, said, shard):
                    return
            with silence(), context():
                call = read(owner.module)
                if plan == "leave out":
                    self._measurer.leave_out(name, call)
                    return
                call = call.with_sink(sinks_of(owner.module)) if call.source == "flex" else call
                b, _, t, s = call.inputs.shape
                said = self._padding.find(owner if is_eager else owner._replace(name=name), (b, t, s))
                call = call if said is None else replace(call, said=said)
                if call.shard is None and self._find_heads is not None:
                    call = replace(call, shard=self._find_heads(owner.module, call.inputs))
                sight = self._measurer.measure_call(name, call, now=not is_eager)
            if not is_eager and sight is not None:
                self._compiled.append((owner.name, sight))
        except RefusedError:
            raise
        except Exception as error:  # noqa: BLE001 (the model must not feel it)
            self._seen.mark_unseen(name, reason_of(error))
