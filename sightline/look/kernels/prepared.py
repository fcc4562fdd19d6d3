"""Launch a kernel that was compiled before without Triton's search for it.

Triton inspects every argument of every launch to find the kernel compiled for its kind: for a short kernel
that takes longer than the kernel. Here a compiled kernel is kept for each call, by its arguments' kinds.
"""

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime.jit import JITFunction

# ruff: noqa: SLF001 (torch has no public way to the number of a stream)
_C: Any = torch._C
_MAX_KEPT = 512
_MAX_MAPS = 64
_LAUNCHER = "__triton_launcher"  # the module that Triton 3.6 builds around a kernel; later ones have none
_kept: dict[Hashable, tuple[Any, tuple[Any, ...]]] = {}


def launch(kernel: Any, grid: tuple[int, int], *args: Any, **constants: Any) -> None:
    """``kernel[grid](*args, **constants)``.

    Args:
        kernel: A kernel of Triton or Gluon.
        grid: How many programs, along two axes.
        args: Tensors, descriptors and numbers, in the kernel's order.
        constants: The kernel's constexprs, all of them, and options such as ``num_warps``.
    """
    if not isinstance(kernel, JITFunction) or torch.version.hip or torch.compiler.is_compiling():
        spoil()
        kernel[grid](*args, **constants)  # the interpreter, or a compiler with other rules
        return
    device = _C._cuda_getDevice()
    key = key_of(kernel, device, args, constants)
    kept = _kept.get(key)
    if kept is not None:
        compiled, rest = kept
        note_launch(compiled, grid, (*args, *rest))
        if is_unhooked():
            stream = _C._cuda_getCurrentRawStream(device)
            run, function, metadata = compiled.run, compiled.function, compiled.packed_metadata
            run(grid[0], grid[1], 1, stream, function, metadata, None, None, None, *args, *rest)
        else:  # a profiler of Triton's wants to know
            compiled[(*grid, 1)](*args, *rest)
        return
    compiled = kernel[grid](*args, **constants)
    if not isinstance(compiled, CompiledKernel):
        spoil()
        return
    rest = tuple(constants[name] for name in kernel.arg_names[len(args) :])
    if len(_kept) >= _MAX_KEPT:
        _kept.clear()
    _kept[key] = compiled, rest
    note_launch(compiled, grid, (*args, *rest))


def is_unhooked() -> bool:
    """Whether nobody is to be told of launches: no hooks, or empty chains of them."""
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return not getattr(enter, "calls", enter) and not getattr(leave, "calls", leave)


Describe = Callable[[Any], tuple[Callable[[Tensor, int], Any], tuple[Any, ...]]]


def open_launcher(run: Any) -> tuple[Any, tuple[Any, ...], Describe]:
    """What a compiled kernel is launched by, with as few steps in Python as its Triton allows.

    Args:
        run: ``compiled.run``.

    Returns:
        What is called with the grid, the stream, the function, some options, the metadata, what is told to
        hooks and the kernel's arguments; those options; and how a tensor that the copy engine reads is
        turned into arguments: a function that makes the first of them, and the others.
    """
    launch: Any = getattr(run, "launch", None)
    parts: list[Any] = []
    if hasattr(launch, "__closure__"):  # around the kernel's own function, where there are descriptors
        cells = zip(launch.__code__.co_freevars, launch.__closure__ or (), strict=True)
        inside = {name: cell.cell_contents for name, cell in cells}
        launch, parts = inside.get("launcher"), inside.get("tensordesc_meta") or [None]
    is_known = getattr(launch, "__module__", None) == _LAUNCHER and all(parts)
    if not is_known or run.global_scratch_size or run.profile_scratch_size:
        return run, (), _copy_descriptor
    metadata = iter(parts)
    options = run.launch_cooperative_grid, run.launch_pdl, None, None  # and no memory to work in
    return launch, options, lambda x: _describe(x, next(metadata))


def _copy_descriptor(x: Any) -> tuple[Callable[[Tensor, int], Any], tuple[Any, ...]]:
    """The descriptor itself, of another tensor."""
    kind, fields = type(x), {name: value for name, value in vars(x).items() if name != "base"}

    def make(base: Tensor, _pointer: int) -> Any:
        descriptor: Any = object.__new__(kind)  # its checks have been made
        descriptor.__dict__.update(fields)
        descriptor.base = base
        return descriptor

    return make, ()


def _describe(x: Any, metadata: dict[str, Any]) -> tuple[Callable[[Tensor, int], Any], tuple[Any, ...]]:
    """What Triton 3.6 makes of a descriptor: a map for the copy engine, then shape and strides.

    A map depends on where the tensor begins, and models use the same memory again: maps are kept.
    """
    from triton.backends.nvidia.driver import make_tensordesc_arg  # noqa: PLC0415 (its other launchers lack it)

    copy_of, _ = _copy_descriptor(x)
    maps: dict[int, Any] = {}

    def make(base: Tensor, pointer: int) -> Any:
        known = maps.get(pointer)
        if known is None:
            if len(maps) >= _MAX_MAPS:
                maps.clear()
            known = maps[pointer] = make_tensordesc_arg(copy_of(base, pointer), metadata)[0]
        return known

    return make, (*x.shape, *x.strides)


def key_of(kernel: Any, device: int, args: tuple[Any, ...], constants: dict[str, Any]) -> Hashable:
    """All that the choice of a compiled kernel depends on; of integers more than that, their value."""
    kinds: list[Hashable] = []
    for x in args:
        kind = type(x)
        if kind is int:
            kinds.append(x)
        elif kind is Tensor:
            kinds += (x.dtype, x.data_ptr() % 16 == 0)
        elif kind is float:
            kinds.append(float)
        else:
            kinds.append(_kind(x))
    return id(kernel), device, tuple(kinds), tuple(constants.items()), tuple(map(type, constants.values()))


def _kind(x: Any) -> Hashable:
    """A tensor's dtype and whether it begins at a multiple of 16 bytes; a float's type; else the value."""
    if isinstance(x, Tensor):
        return x.dtype, x.data_ptr() % 16 == 0
    if isinstance(x, float):
        return float
    if hasattr(x, "block_shape"):  # a tensor as the copy engine reads it
        return type(x), x.base.dtype, tuple(x.block_shape), getattr(x, "layout", None), x.padding
    return type(x), x


# How a measurement is written down


class Allocated:
    """A tensor that was allocated, and by which function of torch."""

    __slots__ = ("make", "tensor")

    def __init__(self, make: Callable[..., Tensor], tensor: Tensor) -> None:
        self.make, self.tensor = make, tensor


class Record:
    """What a measurement does, one step after the other.

    Attributes:
        steps: Allocations and launches.
        is_whole: Whether nothing happened that can't be written down.
    """

    def __init__(self) -> None:
        self.steps: list[Allocated | tuple[Any, tuple[int, int], tuple[Any, ...]]] = []
        self.is_whole = True


class _Thread(threading.local):
    record: Record | None = None


_THREAD = _Thread()


def allocate(make: Callable[..., Tensor], shape: tuple[int, ...], dtype: torch.dtype, like: Tensor) -> Tensor:
    """``torch.empty`` or ``torch.zeros`` beside a tensor, written down."""
    x = make(shape, dtype=dtype, device=like.device)
    if _THREAD.record is not None:
        _THREAD.record.steps.append(Allocated(make, x))
    return x


def note_launch(compiled: Any, grid: tuple[int, int], args: tuple[Any, ...]) -> None:
    """Write down a launch, with all arguments of its kernel."""
    if _THREAD.record is not None:
        _THREAD.record.steps.append((compiled, grid, args))


def spoil() -> None:
    """Something happens that can't be written down."""
    if _THREAD.record is not None:
        _THREAD.record.is_whole = False


@contextmanager
def writing() -> Iterator[Record]:
    """Write down what happens in a block."""
    before, _THREAD.record = _THREAD.record, Record()
    try:
        yield _THREAD.record
    finally:
        _THREAD.record = before
