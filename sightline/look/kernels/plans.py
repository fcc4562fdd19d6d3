"""A measurement that was made before, made again with other tensors: its allocations and launches are known.

The first call with some shapes, strides, mask and request goes the whole way and is written down, each tensor
by what it is: q, k, the log-sum-exp, or the n-th allocation. The next call of that kind follows the script:
pointers are put in their places, and nothing is looked up, checked or specialised again. A plan holds none of
these tensors, and whatever could change a compiled kernel is part of its key.
"""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sightline.look.inputs import ScoreInputs
from sightline.look.kernels.request import Stats, StatsRequest

if TYPE_CHECKING:
    from sightline.look.kernels.prepared import Record

__all__ = ["Plan", "key_of", "measure_again", "planned"]

# ruff: noqa: SLF001 (torch has no public way to the number of a stream)
_C: Any = torch._C
_MAX_KEPT = 256
_kept: dict[Hashable, "Plan"] = {}
_ALLOCATED = 3  # the place of a plan's first own tensor, after q, k and lse
_STREAM = 3  # the place of the stream among the arguments of a launch, after its grid
_LIKE = {torch.empty: torch.empty_like, torch.zeros: torch.zeros_like}


class _Launch:
    """A launch without its tensors.

    Args:
        compiled: The compiled kernel.
        grid: How many programs, along two axes.
        args: All arguments of the kernel, in its order.
        place_of: Where a tensor comes from, and how many bytes after its beginning.
    """

    __slots__ = ("_args", "_compiled", "_descriptors", "_launch", "_pointers")

    def __init__(
        self,
        compiled: Any,
        grid: tuple[int, int],
        args: tuple[Any, ...],
        place_of: Callable[[Tensor], tuple[int, int]],
    ) -> None:
        from sightline.look.kernels.prepared import open_launcher  # noqa: PLC0415 (needs Triton)

        self._compiled = compiled  # which keeps the kernel loaded
        self._launch, options, describe = open_launcher(compiled.run)
        self._args: list[Any] = [*grid, 1, None, compiled.function, *options, compiled.packed_metadata]
        self._args += (None, None, None)  # nobody is told of it
        self._pointers: list[tuple[int, int, int]] = []
        self._descriptors: list[tuple[int, int, Callable[[Tensor, int], Any]]] = []
        for x in args:
            at = len(self._args)
            if isinstance(x, Tensor):
                self._pointers.append((at, *place_of(x)))
                self._args.append(None)
            elif hasattr(x, "block_shape"):  # a tensor as the copy engine reads it
                place, offset = place_of(x.base)
                if offset:
                    raise LookupError("a part of a tensor")
                make, rest = describe(x)
                self._descriptors.append((at, place, make))
                self._args += (None, *rest)
            else:
                self._args.append(x)

    def __call__(self, stream: int, tensors: list[Any], pointers: list[int]) -> None:
        """Launch it on these tensors."""
        args = self._args.copy()
        args[_STREAM] = stream
        for at, place, offset in self._pointers:
            args[at] = pointers[place] + offset
        for at, place, make in self._descriptors:
            args[at] = make(tensors[place], pointers[place])
        self._launch(*args)


class Plan:
    """What was allocated and launched to measure something.

    Args:
        record: How it went.
        given: q, k and the log-sum-exp, if there was one.
        stats: What came out.
    """

    __slots__ = ("_found", "_index", "_steps", "is_unhooked")

    def __init__(self, record: "Record", given: tuple[Tensor, Tensor, Tensor | None], stats: Stats) -> None:
        from sightline.look.kernels.prepared import Allocated, is_unhooked  # noqa: PLC0415 (needs Triton)

        own = [step.tensor for step in record.steps if isinstance(step, Allocated)]
        self.is_unhooked = is_unhooked  # whether nobody is to be told of launches
        self._index = given[0].get_device()
        self._steps: list[tuple[Callable[..., Tensor], Tensor] | _Launch] = []

        def place_of(x: Tensor) -> tuple[int, int]:
            begin = x.data_ptr()
            for place, tensor in enumerate(given):
                if tensor is not None and tensor.data_ptr() == begin:
                    return place, 0
            for place, tensor in enumerate(own, start=_ALLOCATED):
                if 0 <= begin - tensor.data_ptr() < tensor.nbytes:
                    return place, begin - tensor.data_ptr()
            raise LookupError("a tensor from elsewhere")

        for step in record.steps:
            if isinstance(step, Allocated):
                self._steps.append((_LIKE[step.make], _template(step.tensor)))
            else:
                self._steps.append(_Launch(*step, place_of))
        places = [None if x is None else place_of(x) for x in stats]
        whole: tuple[Any, ...] = (*given, *own)
        for x, place in zip(stats, places, strict=True):
            if x is not None and place is not None and (place[1] or x.shape != whole[place[0]].shape):
                raise LookupError("a part of a tensor")
        self._found = tuple(None if x is None else x[0] for x in places)

    def __call__(self, q: Tensor, k: Tensor, lse: Tensor | None) -> Stats:
        """Measure these in the same way."""
        tensors: list[Any] = [q, k, lse]
        pointers = [q.data_ptr(), k.data_ptr(), 0 if lse is None else lse.data_ptr()]
        stream = _C._cuda_getCurrentRawStream(self._index)
        for step in self._steps:
            if isinstance(step, _Launch):
                step(stream, tensors, pointers)
            else:
                make, template = step
                x = make(template, memory_format=torch.contiguous_format)
                tensors.append(x)
                pointers.append(x.data_ptr())
        found: list[Any] = [None if place is None else tensors[place] for place in self._found]
        return Stats(*found)


def _template(x: Tensor) -> Tensor:
    """A tensor of that shape in the memory of one number: to make others like it takes half the time.

    Torch reads a shape, a dtype and a device from Python as slowly as it allocates.
    """
    return x.new_empty(()).expand(x.shape)


# Which measurements are alike


def key_of(inputs: ScoreInputs, request: StatsRequest, lse: Tensor | None) -> Hashable | None:
    """All that a plan depends on; None where none can be made: steps of torch's own come between launches."""
    mask, q, k, device = inputs.mask, inputs.q, inputs.k, _C._cuda_getDevice()
    if type(inputs) is not ScoreInputs or inputs.score is not None or inputs.modify is not None:
        return None
    if inputs.sink is not None or inputs.padding is not None or mask.lengths or mask.allowed or mask.added:
        return None
    if type(q) is not Tensor or type(k) is not Tensor or q.get_device() != device:
        return None
    if lse is not None and (type(lse) is not Tensor or not lse.is_contiguous() or lse.dtype != torch.float32):
        return None
    return (
        q.shape, q.stride(), q.data_ptr() % 16, k.shape, k.stride(), k.data_ptr() % 16,
        None if lse is None else lse.data_ptr() % 16,
        q.dtype, k.dtype, device, mask.bands, inputs.scale, request,
        torch.get_float32_matmul_precision() if q.dtype is torch.float32 else None,
    )  # fmt: skip


def measure_again(key: Hashable | None, inputs: ScoreInputs, lse: Tensor | None) -> Stats | None:
    """Measure by the plan of that key; None if there is none, or somebody wants to hear of launches."""
    plan = None if key is None else _kept.get(key)
    if plan is None or torch.compiler.is_compiling():
        return None
    return plan(inputs.q, inputs.k, lse) if plan.is_unhooked() else None


def planned(
    key: Hashable | None,
    inputs: ScoreInputs,
    lse: Tensor | None,
    measure: Callable[[], Stats],
) -> Stats:
    """Measure, and keep how it went for the next time."""
    q, k = inputs.q, inputs.k
    if key is None or q.data_ptr() == k.data_ptr() or inputs.may_have_empty_rows():
        return measure()  # or it can't be told which of the two a kernel was given
    if q.is_cuda and torch.cuda.is_current_stream_capturing():  # what is allocated then belongs to the graph
        return measure()
    from sightline.look.kernels.prepared import Allocated, writing  # noqa: PLC0415 (needs Triton)

    with writing() as record:
        stats = measure()
    if record.is_whole and any(not isinstance(step, Allocated) for step in record.steps):
        try:
            plan = Plan(record, (q, k, lse), stats)
        except LookupError:  # a tensor that is neither given nor allocated
            return stats
        if len(_kept) >= _MAX_KEPT:
            _kept.clear()
        _kept[key] = plan
    return stats
