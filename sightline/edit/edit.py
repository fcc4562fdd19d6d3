"""``edit``: what a model would do if some of its attention were different, on its own kernels.

Calls of ``F.scaled_dot_product_attention`` and ``sl.attention`` are taken over, changed and made again;
``nn.MultiheadAttention``, which hides its call, is sent through ``sl.attention`` while the block lasts. A
model that attends outside its modules' ``forward``, as in step-by-step decoding, says for whom it does.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from sightline.attention.attend import attention
from sightline.attention.multihead import MultiheadAttention
from sightline.edit.edited_call import Ablation, Change, Pair, edited_attention, read_heads, read_pairs
from sightline.edit.mha_forward import send_through_attention, slow_path
from sightline.edit.nested import zero_padding
from sightline.messages import warn_caller
from sightline.watch.names import matches
from sightline.watch.readers.calls import Call, read_attention_call, read_sdpa_call

__all__ = ["Edit", "edit", "is_editing", "on_behalf"]

_FORWARDS = (nn.MultiheadAttention.forward, MultiheadAttention.forward)


def edit(
    model: nn.Module,
    *,
    layers: str | Callable[[str], bool] | None = None,
    heads: int | Sequence[int] | None = None,
    ablate: Ablation | None = None,
    forbid: Sequence[Pair] | None = None,
    temperature: float | None = None,
    scale: float | None = None,
) -> "Edit":
    """Change what a model attends to: ``with sl.edit(model, heads=[3], ablate="zero"): model(x)``.

    The model keeps its fused kernels. Edits nest, in each other and with :func:`sightline.watch`, which then
    sees the changed attention; other threads run the model as it is. After the block, or an exception in it,
    no trace is left; a backward pass that recomputes activations belongs inside.

    Args:
        model: Any module that calls ``F.scaled_dot_product_attention``, ``nn.MultiheadAttention`` or
            ``sl.attention``.
        layers: Which modules to change: a pattern such as ``"*.3.*"`` or a part of the name such as
            ``"layer.3"``, or a function of the name. Default: all.
        heads: Which heads of them. Default: all.
        ablate: ``"zero"`` takes a head out; ``"mean"`` replaces its output by the mean over the batch and the
            queries of the call (of a single one it is itself, which a warning says); ``"uniform"`` lets it
            look at all that it may alike.
        forbid: Pairs ``(queries, keys)`` that may not look any more (attention knockout): slices, ranges or
            lists of positions in the call, None for all. A query that has nothing left gets zeros, and a
            warning says so.
        temperature: Divides the scores before the softmax, biases included.
        scale: Multiplies the weights after it.

    Example:
        >>> layer = nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True).eval()
        >>> x = torch.randn(1, 5, 8)
        >>> with sl.watch(layer) as seen, edit(layer, heads=[0], forbid=[(None, [4])]):
        ...     y = layer(x)
        >>> seen["self_attn"].received[0, 0, 4].item()
        0.0
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"edit takes an nn.Module, got {type(model).__name__}")
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod"):
            raise ValueError(
                f"a compiled module, here {name or 'the model itself'} ({type(module).__name__}), can't be "
                "edited; edit the module it was made from"
            )
    change = Change(
        heads=read_heads(heads),
        ablate=ablate,
        forbid=read_pairs(forbid),
        temperature=temperature,
        scale=scale,
    )
    return Edit(model, _name_filter(layers), change)


def is_editing() -> bool:
    """Whether some attention may be changed here."""
    return any(isinstance(mode, _Interceptor) for mode in _get_current_function_mode_stack())


@contextlib.contextmanager
def on_behalf(module: nn.Module, *, in_order: bool = True, n_beams: int = 1) -> Iterator[None]:
    """Attend for a module whose ``forward`` does not run.

    Args:
        module: The module.
        in_order: Whether keys lie in the order of their positions.
        n_beams: How many beams of a search are the queries of the call.
    """
    with contextlib.ExitStack() as undo:
        for mode in _get_current_function_mode_stack():
            if isinstance(mode, _Interceptor):
                undo.enter_context(mode.edit.running(module, in_order=in_order, n_beams=n_beams))
        yield


class Edit:
    """The block inside which a model's attention is changed."""

    def __init__(self, model: nn.Module, is_selected: Callable[[str], bool], change: Change) -> None:
        self._model, self._is_selected, self._change = model, is_selected, change
        self._stack: list[str] = []
        self._names: dict[nn.Module, str] = {}
        self._undo: contextlib.ExitStack | None = None
        self._attended: dict[str, bool] = {}  # the modules that attended, and whether they were changed

    def __enter__(self) -> "Edit":  # noqa: PYI034 (the shape hook knows no Self)
        """Start changing."""
        if self._undo is not None:
            raise RuntimeError("this edit is entered already; make another one with sl.edit(model, ...)")
        self._attended = {}
        self._warned: set[str] = set()
        self._ran = False
        self._names = {module: name for name, module in self._model.named_modules()}
        with contextlib.ExitStack() as undo:
            fast = undo.enter_context(slow_path())
            for module, name in self._names.items():
                self._hook(module, name, undo)
                if isinstance(module, nn.MultiheadAttention) and type(module).forward in _FORWARDS:
                    send_through_attention(module, undo)
                if fast and isinstance(module, nn.TransformerEncoder):
                    zero_padding(module, undo, lambda: True)
            undo.enter_context(_Interceptor(self))
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave everything as it was."""
        assert self._undo is not None  # noqa: S101
        undo, self._undo = self._undo, None
        self._stack.clear()
        undo.__exit__(kind, error, trace)
        if error is None and self._ran and not self.changed:
            warnings.warn(f"the edit changed nothing: {self._explanation()}", stacklevel=2)

    def _explanation(self) -> str:
        if self._attended:
            names = ", ".join(repr(name) for name in list(self._attended)[:3])
            return f"layers= chose none of the modules that attended, such as {names}"
        return (
            "no fused attention ran; load a Hugging Face model with attn_implementation='sdpa', or call "
            "F.scaled_dot_product_attention or sl.attention"
        )

    @property
    def changed(self) -> list[str]:
        """The modules whose attention was changed, in the order of their first call."""
        return [name for name, was_changed in self._attended.items() if was_changed]

    def _hook(self, module: nn.Module, name: str, undo: contextlib.ExitStack) -> None:
        """Know which module is running."""

        def before(_module: nn.Module, _args: Any) -> None:
            if self._is_on():
                self._stack.append(name)
                self._ran = True

        def after(_module: nn.Module, _args: Any, _output: Any) -> None:
            if self._stack and self._is_on():
                self._stack.pop()

        undo.callback(module.register_forward_pre_hook(before).remove)
        undo.callback(module.register_forward_hook(after, always_call=True).remove)

    @contextlib.contextmanager
    def running(self, module: nn.Module, *, in_order: bool, n_beams: int) -> Iterator[None]:
        """A module of the model attends; nothing happens where it is another model's."""
        name = self._names.get(module)
        if name is None:
            yield
            return
        if not in_order and self._change.forbid and self._is_selected(name):
            raise ValueError(
                f"forbid names positions, and in {name} the beams of a search keep their keys in one table; "
                "search with beam=1, or choose other layers"
            )
        names_queries = any(queries is not None for queries, _ in self._change.forbid)
        if n_beams > 1 and names_queries and self._is_selected(name):
            raise ValueError(
                f"forbid names queries, and in {name} the queries of a step are the {n_beams} beams of a "
                "search; forbid the keys for all of them, (None, keys), or search with beam=1"
            )
        self._stack.append(name)
        self._ran = True
        try:
            yield
        finally:
            if self._stack:
                self._stack.pop()

    def call_sdpa(self, sdpa: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Make a call of torch's function, changed if its module was chosen."""
        if not self._is_mine():
            return sdpa(*args, **kwargs)
        return self._make(read_sdpa_call(args, kwargs, self._name))

    def call_attention(
        self, ours: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Tensor:
        """Make a call of ``sl.attention``, changed if its module was chosen."""
        if not self._is_mine():
            return ours(*args, **kwargs)
        return self._make(read_attention_call(args, kwargs))

    def _make(self, call: Call) -> Tensor:
        output, n_emptied, is_own_mean = edited_attention(self._change, call, self._name)
        where = self._name or "the model itself"
        if n_emptied:
            self._tell(
                f"forbid leaves {n_emptied} queries of {where} nothing to look at, their output is zeros; "
                "allow them one key"
            )
        if is_own_mean:
            self._tell(
                f"ablate='mean' changes nothing in {where}: the call has one item and one query, as steps "
                "with a cache have; give ablate='zero', or run the whole sequence at once"
            )
        return output

    def _tell(self, sentence: str) -> None:
        """Warn, once for each module."""
        if self._name not in self._warned:
            self._warned.add(self._name)
            warn_caller(sentence)

    def _is_on(self) -> bool:
        """Whether this is a thread whose calls are changed; hooks run in all of them."""
        modes = _get_current_function_mode_stack()
        return any(isinstance(mode, _Interceptor) and mode.edit is self for mode in modes)

    @property
    def _name(self) -> str:
        return self._stack[-1] if self._stack else ""

    def _is_mine(self) -> bool:
        """Whether the module that attends was chosen."""
        mine = bool(self._stack) and self._is_selected(self._name)
        if self._stack:
            self._attended[self._name] = mine
        return mine


class _Interceptor(TorchFunctionMode):
    """Hand the calls of attention to an edit."""

    def __init__(self, edit: Edit) -> None:
        super().__init__()
        self.edit = edit

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            return self.edit.call_sdpa(func, args, kwargs or {})
        if func is attention:
            return self.edit.call_attention(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _name_filter(layers: str | Callable[[str], bool] | None) -> Callable[[str], bool]:
    if layers is None:
        return lambda _name: True
    if isinstance(layers, str):
        return lambda name: matches(name, layers)
    if callable(layers):
        return layers
    raise TypeError(f"layers must be a pattern or a function of a module's name, got {type(layers).__name__}")
