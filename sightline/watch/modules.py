"""Which module of a model is running, read off Python's own stack: nothing is hooked into the model."""

import functools
import inspect
import sys
import weakref
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

# How methods and Hugging Face's attention functions call the module that they belong to.
_FIRST_ARGUMENTS = frozenset({"self", "module"})
_CALLS = frozenset({"forward", "_call_impl", "_wrapped_call_impl"})  # a module that computes its output
# What wrappers call the module inside them: torch.compile, FSDP, activation checkpointing.
_WRAPPED = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)
# Files of frames that lie between compiled code and the module that runs it.
_COMPILED = ("/torch/_functorch/_aot_autograd/", "/torch/_inductor/", "torchinductor_", "<eval_with_key>")
_FLEX = "/torch/nn/attention/flex_attention.py"
_ROOMS = (Path(__file__).parents[1] / room for room in ("look", "watch", "edit"))
_SKIPPED = tuple(map(str, (Path(torch.__file__).parent, *_ROOMS)))  # torch's own frames, and ours
SNAPSHOTS = sys.version_info < (3, 13)  # whether a frame keeps its locals once they were asked for
_OPTIMIZED = inspect.CO_OPTIMIZED
_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads")


class Owner(NamedTuple):
    """The innermost module of the model that is running.

    Attributes:
        name: Its qualified name.
        module: The module itself.
        site: Where in compiled code the call was made, if it was; else None.
    """

    name: str
    module: nn.Module
    site: tuple[object, int] | None = None

    @property
    def is_layer(self) -> bool:
        """Whether it is a layer around an attention, and not compiled, where names are found otherwise."""
        module = self.module
        is_around = isinstance(module, nn.TransformerEncoderLayer) or not looks_like_attention(module)
        return is_around and self.site is None

    def attention(self) -> "Owner":
        """The attention in a layer that is one operator."""
        return Owner(f"{self.name}.self_attn" if self.name else "self_attn", self.module)


class Structure:
    """The names of a model's modules, and which of them look like attention; it holds on to no module."""

    def __init__(self, model: nn.Module, modules: list[nn.Module]) -> None:
        self.kind = type(uncompiled(model)).__name__
        self.modules = tuple(map(id, modules))
        self.by_kernels = False  # whether a block has shown that it attends by kernels alone
        self.names: dict[int, str] = {}
        self.attentions: dict[str, str] = {}  # and their classes
        named = dict(model.named_modules())
        parallel = {name for name, module in named.items() if isinstance(module, _PARALLEL)}
        for name, module in named.items():
            self.names.setdefault(id(module), _short_name(name, parallel))
            if looks_like_attention(module):
                self.attentions.setdefault(self.names[id(module)], type(module).__name__)
        self.around: dict[int, tuple[str, ...]] = {  # the attentions that a module is part of
            key: tuple(outer for outer in self.attentions if _is_in(name, outer))
            for key, name in self.names.items()
        }


_STRUCTURES: "weakref.WeakKeyDictionary[nn.Module, Structure]" = weakref.WeakKeyDictionary()


def _structure_of(model: nn.Module, modules: list[nn.Module]) -> Structure:
    """The structure of a model, found out once and kept while its modules stay the same."""
    known = _STRUCTURES.get(model)
    if known is None or known.modules != tuple(map(id, modules)):
        known = _STRUCTURES[model] = Structure(model, modules)
    return known


def _modules_of(model: nn.Module) -> list[nn.Module]:
    """All modules of a model, those that it holds twice twice; quicker than ``model.modules()``."""
    found: list[nn.Module | None] = [model]
    for module in found:  # which grows on the way
        if module is not None and module._modules:  # noqa: SLF001
            found += module._modules.values()  # noqa: SLF001
    return [x for x in found if x is not None]


class Pointers:
    """Where the parameters of a model lie in memory, and which attentions they belong to."""

    def __init__(self, modules: list[nn.Module], structure: Structure) -> None:
        self._modules, self._structure = modules, structure

    @functools.cached_property
    def _attentions(self) -> dict[int, tuple[str, ...]]:
        """By where they begin; many models never ask."""
        found: dict[int, tuple[str, ...]] = {}
        around = self._structure.around
        for module in self._modules:
            own = module._parameters  # noqa: SLF001
            if own:
                outer = around[id(module)]
                for parameter in own.values():
                    if type(parameter) is nn.Parameter:
                        found[parameter.data_ptr()] = outer
                    elif parameter is not None:
                        found[_pointer(parameter)] = outer
        found.pop(0, None)
        return found

    def is_parameter(self, x: Tensor) -> bool:
        """Whether a tensor is a parameter, or a view of one."""
        return x.data_ptr() in self._attentions or x.untyped_storage().data_ptr() in self._attentions

    def attentions_of(self, x: Tensor) -> tuple[str, ...] | None:
        """The attentions that a parameter belongs to; None for what is no parameter."""
        return self._attentions.get(_pointer(x))


def _pointer(x: Tensor) -> int:
    """Where a tensor lies; 0 if it has no memory of its own."""
    try:
        return x.data_ptr()
    except Exception:  # noqa: BLE001 (wrappers say so in their own ways)
        return 0


class ModuleResolver:
    """The modules of a model by identity, and the names of those that look like attention."""

    def __init__(self, model: nn.Module) -> None:
        modules = _modules_of(model)
        structure = self.structure = _structure_of(model, modules)
        self._names, self.attentions, self.kind = structure.names, structure.attentions, structure.kind
        self.pointers = Pointers(modules, structure)
        self._sites: dict[str, dict[tuple[object, int], int]] = {}

    def current(self, depth: int = 2, limit: int | None = None) -> Owner | None:
        """The innermost module of the model on the stack; None if the model is not running.

        Args:
            depth: How many frames to leave out.
            limit: How many frames to look at, at most.
        """
        frame: FrameType | None = sys._getframe(depth)  # noqa: SLF001
        first, is_compiled, n = None, False, 0
        stranger: nn.Module | None = None  # the outermost module so far that is none of the model's
        while frame is not None and (limit is None or n < limit):
            code = frame.f_code
            n += 1
            if code.co_argcount and code.co_varnames[0] in _FIRST_ARGUMENTS:
                (running,) = local_variables(frame, code.co_varnames[0])
                if isinstance(running, nn.Module):
                    name = self._names.get(id(running))
                    if name is None:
                        stranger = running
                    elif stranger is None or _belongs(stranger, running, code.co_name):
                        return Owner(name, running, (first or (None, 0)) if is_compiled else None)
            compiles, is_flex, is_skipped = _facts_of_file(code.co_filename)
            is_compiled = (is_compiled or compiles) and not is_flex  # it compiles itself, in an eager model
            if first is None and not is_skipped:
                first = (code, frame.f_lineno)
            frame = frame.f_back
        return None

    def name_in_compiled(self, owner: Owner) -> str:
        """The name of an attention that ran in compiled code, by its place among those of its owner.

        Compiled code has no modules any more, but its calls come in the order of the modules.
        """
        assert owner.site is not None  # noqa: S101
        inside = self.attentions_in(owner.name)
        sites = self._sites.setdefault(owner.name, {})
        place = sites.setdefault(owner.site, len(sites))
        return inside[place % len(inside)] if inside else owner.name

    def attentions_in(self, name: str) -> list[str]:
        """The innermost modules in a module that look like attention, in their order."""
        prefix = f"{name}." if name else ""
        names = [n for n in self.attentions if n.startswith(prefix) and n != name]
        return [n for n in names if not any(m.startswith(f"{n}.") for m in names)]

    def misnamed(self) -> set[str]:
        """ModuleResolver whose attentions in compiled code can't be told apart: some were not seen."""
        sizes = {name: len(self.attentions_in(name)) for name in self._sites}
        return {name for name, sites in self._sites.items() if sizes[name] and len(sites) % sizes[name]}

    def nameless(self) -> dict[str, int]:
        """Owners of several attentions in compiled code, none in a module that looks like it; how many."""
        found = {}
        for name, sites in self._sites.items():
            most = max(Counter(code for code, _ in sites).values())  # other shapes are compiled anew
            if most > 1 and name not in self.attentions and not self.attentions_in(name):
                found[name] = most
        return found


def _belongs(stranger: nn.Module, module: nn.Module, method: str) -> bool:
    """Whether an unregistered module that a module's method called is a part of it.

    What ``forward`` calls is. Other methods call other models too: ``generate`` its assistant.
    """
    if method in _CALLS:
        return True
    held = vars(module).values()
    return any(x is stranger or (isinstance(x, list | tuple) and stranger in x) for x in held)


def _short_name(name: str, parallel: set[str]) -> str:
    """A qualified name as the plain model has it, without the wrappers around its modules."""
    parts, kept = name.split("."), []
    for i, part in enumerate(parts):
        is_inner = part == "module" and ".".join(parts[:i]) in parallel
        if part not in _WRAPPED and not is_inner:
            kept.append(part)
    return ".".join(kept)


@functools.cache
def _facts_of_file(file: str) -> tuple[bool, bool, bool]:
    """Whether a frame's file is compiled code, FlexAttention's own, torch's or ours."""
    return any(part in file for part in _COMPILED), file.endswith(_FLEX), file.startswith(_SKIPPED)


def _is_in(name: str, outer: str) -> bool:
    """Whether a module is another one, or in it."""
    return name == outer or not outer or name.startswith(f"{outer}.")


def uncompiled(model: nn.Module) -> nn.Module:
    """The module that ``torch.compile`` or ``DataParallel`` was given."""
    inner: Any = model.module if isinstance(model, _PARALLEL) else None
    if "_orig_mod" in model._modules:  # noqa: SLF001 (quicker than to ask for what is seldom there)
        inner = model._modules["_orig_mod"]  # noqa: SLF001
    return uncompiled(inner) if isinstance(inner, nn.Module) else model


def looks_like_attention(module: nn.Module) -> bool:
    """Whether a module's class is named like one that attends, not like what comes after."""
    kind = type(module).__name__.lower()
    named = ("attention" in kind or "attn" in kind) and not kind.endswith("output")
    return named or isinstance(module, nn.MultiheadAttention)


def sinks_of(module: nn.Module) -> Tensor | None:
    """The scores of a module's attention sinks, one per head."""
    sinks = getattr(module, "sinks", None)
    return sinks if isinstance(sinks, Tensor) and sinks.is_floating_point() else None


def count_heads(module: nn.Module) -> int | None:
    """How many heads a module says it has."""
    for name in _HEADS:
        heads = getattr(module, name, None)
        if isinstance(heads, int) and heads > 0:
            return heads
    return None


def local_variables(frame: FrameType, *names: str) -> list[Any]:
    """Local variables of a running function, leaving no snapshot that would keep tensors alive."""
    variables = frame.f_locals
    values = list(map(variables.get, names))
    if SNAPSHOTS and frame.f_code.co_flags & _OPTIMIZED and sys.gettrace() is None:
        variables.clear()
    return values
