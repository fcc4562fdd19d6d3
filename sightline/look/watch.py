"""``watch``: what any model attends to, while it runs on its own kernels and computes its own output.

Four listeners, each for what the one before can't hear; none of them changes what is computed:

1. below autograd, the fused operators themselves, wherever they are called from, with their log-sum-exp;
2. around ``F.scaled_dot_product_attention``, for the calls that torch takes apart into matrix products;
3. around ``sl.attention``, for scores that are no dot product, and for what is computed block by block;
4. around ``nn.MultiheadAttention``, for the calls that compute their weights by hand (``need_weights=True``).
"""

import contextlib
import fnmatch
import threading
import warnings
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from sightline.attention.attend import attention
from sightline.attention.multihead import MultiheadAttention
from sightline.look.fused import FusedCall, FusedCallRecorder
from sightline.look.groups import is_integer
from sightline.look.look import captured_lse, make_score_inputs
from sightline.look.nested import zero_padding
from sightline.look.score_inputs import ScoreInputs, StoredRows, Tile
from sightline.look.seen import Seen
from sightline.look.sight import KeptInputs, Look, Sight, check_measure, measure_sight
from sightline.look.stream import tile_weights
from sightline.look.torch_calls import read_attention_call, read_mha_call, read_sdpa_call

__all__ = ["watch"]

_EVERYTHING = Look()
# Whose arguments and output are known; what another subclass makes of them is its own affair.
_FORWARDS = (nn.MultiheadAttention.forward, MultiheadAttention.forward)
_FEW_QUERIES = 8  # with so few it is cheaper to keep their weights than their keys


def watch(
    model: nn.Module,
    *,
    layers: str | Callable[[str], bool] | None = None,
    every: int = 1,
    measure: Look = _EVERYTHING,
    keep: bool = False,
    limit: int = 2 << 30,
) -> "Watch":
    """See what a model attends to: ``with sl.watch(model) as seen: model(x)``.

    The model keeps its kernels, its output and its gradients, bit for bit; only torch's whole-layer
    inference operators, which show nothing, are switched off inside the block (there the output agrees to
    rounding). After the block, or an exception in it, no trace is left.

    Args:
        model: Any module that calls a fused attention kernel, ``F.scaled_dot_product_attention``,
            ``nn.MultiheadAttention`` or ``sl.attention``.
        layers: Which modules to look at: a pattern such as ``"*.3.self_attn"``, or a function of the name.
        every: Measure each n-th call of a module only, for training.
        measure: What to measure. Default: received, entropy and peak. A map, or a top, that is larger
            than a call has queries or keys is as large as they are.
        keep: Hold on to each call's q and k for later maps, rows and tops: as much memory as they take.
        limit: How many bytes of sights to collect; what comes after is not measured, and that is told.

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
    for name, module in model.named_modules():
        if _is_compiled(module):
            raise ValueError(
                f"a compiled module, here {name or 'the model itself'} ({type(module).__name__}), does not "
                "show its attention; watch the module it was made from"
            )
    if not is_integer(every) or every < 1:
        raise ValueError(f"every must be a whole number >= 1, got {every!r}; 1 measures each call")
    check_measure(measure)
    if not is_integer(limit) or limit < 0:
        raise ValueError(
            f"limit must be a whole number of bytes >= 0, got {limit!r}; 2 << 30 is two gigabytes"
        )
    return Watch(model, _name_filter(layers), every, measure, keep, limit)


class Watch:
    """The block inside which a model is watched; entering it gives the :class:`Seen`."""

    def __init__(
        self,
        model: nn.Module,
        chosen: Callable[[str], bool],
        every: int,
        measure: Look,
        keep: bool,
        limit: int,
    ) -> None:
        self._model, self._is_selected = model, chosen
        self._every, self._measure, self._keep, self._limit = every, measure, keep, limit
        self._stack: list[str] = []
        self._counts: dict[str, int] = {}  # calls of each module so far
        self._n_calls = 0  # of all, so that a later listener knows whether an earlier one heard
        self._inner: list[FusedCall] | None = None  # those that an attention of ours is made of, inside it
        self._undo: contextlib.ExitStack | None = None
        self._thread = 0

    def __enter__(self) -> Seen:
        """Start listening."""
        if self._undo is not None:
            raise RuntimeError("this watch is entered already; make another one with sl.watch(model)")
        self._seen, self._counts, self._n_calls = Seen(self._model), {}, 0
        self._thread = threading.get_ident()
        with contextlib.ExitStack() as undo:
            fast = torch.backends.mha.get_fastpath_enabled()
            undo.callback(torch.backends.mha.set_fastpath_enabled, fast)
            torch.backends.mha.set_fastpath_enabled(False)
            for name, module in self._model.named_modules():
                self._hook(module, name, undo)
                if fast and isinstance(module, nn.TransformerEncoder):
                    zero_padding(module, undo, _is_alone)
            undo.enter_context(
                _FunctionInterceptor(
                    {F.scaled_dot_product_attention: self._call_sdpa, attention: self._call_attention}
                )
            )
            undo.enter_context(FusedCallRecorder(self._record_call))
            self._undo = undo.pop_all()
        return self._seen

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening and leave everything as it was."""
        assert self._undo is not None  # noqa: S101
        undo, self._undo = self._undo, None
        self._stack.clear()
        undo.__exit__(kind, error, trace)

    def _hook(self, module: nn.Module, name: str, undo: contextlib.ExitStack) -> None:
        """Know when a module runs, and what an ``nn.MultiheadAttention`` is given."""
        starts: list[int] = []

        def before(_module: nn.Module, _args: Any) -> None:
            if threading.get_ident() != self._thread and not _recomputing():
                raise RuntimeError(
                    "a watched model must run in the thread that watches it; run it there, "
                    "or watch it inside each thread"
                )
            self._stack.append(name)
            self._seen.mark_called(name)
            starts.append(self._n_calls)

        def after(module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
            if not starts:  # refused before it ran
                return
            nothing_heard = starts.pop() == self._n_calls
            try:
                ran_blind = nothing_heard and output is not None and type(module).forward in _FORWARDS
                if ran_blind and isinstance(module, nn.MultiheadAttention):
                    call = read_mha_call(module, args, kwargs, output[0])
                    if call is not None:
                        self._record_call(call)
            finally:
                self._stack.pop()

        undo.callback(module.register_forward_pre_hook(before).remove)
        undo.callback(module.register_forward_hook(after, with_kwargs=True, always_call=True).remove)

    def _call_sdpa(
        self, sdpa: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Tensor:
        heard_before = self._n_calls
        output = sdpa(*args, **kwargs)
        if self._n_calls == heard_before:
            call = read_sdpa_call(args, kwargs, output)
            if call is not None:
                self._record_call(call)
        return output

    def _call_attention(
        self, ours: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Tensor:
        inner: list[FusedCall] = []
        outer, self._inner = self._inner, inner
        try:
            output = ours(*args, **kwargs)
        finally:
            self._inner = outer
        if outer is not None:  # a score that attends: part of the attention that it scores for
            return output

        def read() -> tuple[ScoreInputs, tuple[int, ...], Tensor | None]:
            inputs, lead = read_attention_call(args, kwargs, kept=self._keep)
            return inputs, lead, captured_lse(inner, inputs)

        self._record(read)
        return output

    def _record_call(self, call: FusedCall) -> None:
        if self._inner is not None:
            self._inner.append(call)
            return
        self._record(lambda: (*make_score_inputs(call.q, call.k, call.v, call.mask, call.scale), call.lse))

    def _record(self, read: Callable[[], tuple[ScoreInputs, tuple[int, ...], Tensor | None]]) -> None:
        """Measure a call, if it is one that was asked for."""
        self._n_calls += 1
        name = self._stack[-1] if self._stack else ""
        if _recomputing():
            return
        if not self._is_selected(name):
            self._seen.mark_skipped(name)
            return
        count = self._counts[name] = self._counts.get(name, -1) + 1
        if count % self._every:
            return
        if self._seen.nbytes > self._limit:
            if not self._seen.full:
                self._seen.full = True
                warnings.warn(
                    f"sights of more than {self._limit} bytes were collected, later calls are not measured; "
                    "raise limit=, or ask for less with every=, layers= or measure=",
                    stacklevel=2,
                )
            return
        if _capturing():
            raise RuntimeError(
                "a watched model can't be captured into a CUDA graph, whose replays write over what was "
                "seen; capture it outside the block, or watch it without the graph"
            )
        with torch.no_grad(), preserve_rng_state():
            inputs, lead, lse = read()
            measure = self._measure.clip(*inputs.shape[2:])  # what one call is too short for breaks no model
            sight = measure_sight(inputs.detached(), measure, lead=lead, lse=lse, keep=self._keep, name=name)
            if self._keep and sight.t <= _FEW_QUERIES:
                sight = _keep_rows(sight)
        self._seen.add(name, sight)


class _FunctionInterceptor(TorchFunctionMode):
    """Hand every call of some functions to others that make it."""

    def __init__(self, around: dict[Callable[..., Any], Callable[..., Any]]) -> None:
        super().__init__()
        self._around = around

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        around = self._around.get(func)
        return func(*args, **(kwargs or {})) if around is None else around(func, args, kwargs or {})


def _is_alone() -> bool:
    """Whether no mode but a watch is on; with others torch does not take its fast path."""
    return all(isinstance(mode, _FunctionInterceptor) for mode in _get_current_function_mode_stack())


def _keep_rows(sight: Sight) -> Sight:
    """Keep the weights themselves instead of q and k."""
    ((inputs, lse),) = sight.kept
    b, h, t, s = inputs.shape
    tile = Tile(slice(0, b), slice(0, h), (0, t), (0, s))
    weights = tile_weights(inputs, tile, lse)
    rows = StoredRows(weights, weights.new_empty(b, h, s, 0), type(inputs.mask)(), 1.0)
    return sight.with_kept((KeptInputs(rows, torch.zeros_like(lse)),))


@contextlib.contextmanager
def preserve_rng_state() -> Iterator[None]:
    """Leave the random numbers as they are: a score that throws dice is asked twice, the model once."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def _recomputing() -> bool:
    """Whether this is gradient checkpointing's second run, in the backward pass and maybe its thread."""
    return torch._C._current_graph_task_id() != -1  # noqa: SLF001


def _capturing() -> bool:
    """Whether a CUDA graph is being captured; a torch without CUDA can't be asked."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _is_compiled(module: nn.Module) -> bool:
    """Whether it came from ``torch.compile``, ``module.compile()`` or ``torch.jit``."""
    compiled = getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod")
    return compiled or isinstance(module, torch.jit.ScriptModule)


def _name_filter(layers: str | Callable[[str], bool] | None) -> Callable[[str], bool]:
    if layers is None:
        return lambda _name: True
    if isinstance(layers, str):
        return lambda name: fnmatch.fnmatchcase(name, layers)
    if callable(layers):
        return layers
    raise TypeError(f"layers must be a pattern or a function of a module's name, got {type(layers).__name__}")
