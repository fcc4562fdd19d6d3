"""Whole tiles by thread: on a CPU each thread measures its own, instead of all sharing every operation.

Torch splits one operation among its threads and waits for the slowest of them before the next. A tile is a
dozen short operations, so on a busy machine, where some thread is always waiting for its core, most of the
time would go by waiting. Here a thread takes a whole tile and computes it alone.

How many threads an operation takes is a setting of the thread that calls it, in OpenMP and in MKL.
``torch.set_num_threads`` sets it too, but also what every thread started later begins with, in the whole
process. So it is set below torch, for the worker alone; where that can't be done, tiles are measured one
after the other, as ever.
"""

import ctypes
import functools
import itertools
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from sightline.look.inputs import ScoreInputs, Tile

__all__ = ["by_tile", "in_order", "one_thread", "shares_tiles"]

_FEW = 1 << 19  # pairs of a query and a key
_AHEAD = 2  # tiles a thread may be ahead of the first that is not put in its place yet

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class _Runtime(NamedTuple):
    """The functions of the libraries that torch runs on; MKL's is None where torch was built without it."""

    set_omp: Callable[[int], Any]
    set_mkl: Callable[[int], int] | None


def by_tile(
    inputs: ScoreInputs, work: Callable[[Tile], _Result], tiles: Iterable[Tile]
) -> Iterator[tuple[Tile, _Result]]:
    """Work on every tile: pairs of a tile and the result, in order, without gradients.

    On a CPU many pairs of a query and a key are shared out by tiles, and few are one thread's. Torch would
    split each operation, and on a busy machine wait at each: 512 tokens of 8 heads took 11 to 31 times the
    blind kernel that way, and take 3.

    Args:
        inputs: What the tiles are of. A score or a modifier of the user's own is called from this thread.
        work: What to do; otherwise several threads may call it.
        tiles: What to do it to; read as far ahead as the threads are.
    """
    if shares_tiles(inputs):
        yield from in_order(work, tiles)
        return
    if torch.get_num_threads() == 1 or not _is_ours(inputs):
        for tile in tiles:
            yield tile, work(tile)
        return
    for tile in tiles:
        with one_thread():
            result = work(tile)
        yield tile, result


def shares_tiles(inputs: ScoreInputs) -> bool:
    """Whether threads share the tiles, each taking whole ones."""
    return _is_ours(inputs) and math.prod(inputs.shape) > _FEW


def _is_ours(inputs: ScoreInputs) -> bool:
    """Whether threads are ours to choose: on a CPU, where no code of the user's own is called."""
    return inputs.q.device.type == "cpu" and inputs.score is None and inputs.modify is None


def in_order(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[tuple[_Item, _Result]]:
    """Work on several items at a time, as many as torch has threads here, each in one: pairs, in order.

    This thread works too: one that only waited for others would often wait for its core as well.

    Args:
        work: What to do; other threads call it too, with autograd and autocast off.
        items: What to do it to.
    """
    n_threads = torch.get_num_threads()
    if n_threads == 1 or _runtime() is None:
        for item in items:
            yield item, work(item)
        return
    inference = torch.is_inference_mode_enabled()

    def alone(item: _Item) -> _Result:
        with torch.inference_mode(inference), torch.no_grad(), torch.autocast("cpu", enabled=False):
            return work(item)

    helpers, rest = _helpers(n_threads - 1, os.getpid()), iter(items)
    waiting: deque[tuple[_Item, Future[_Result]]] = deque()
    try:
        while True:
            for item in itertools.islice(rest, _AHEAD * n_threads - len(waiting)):
                waiting.append((item, helpers.submit(alone, item)))
            if not waiting:
                return
            while not waiting[0][1].done() and _take_one_over(waiting, alone):
                pass
            item, future = waiting.popleft()
            yield item, future.result()
    finally:
        wait([future for _, future in waiting if not future.cancel()])


def _take_one_over(waiting: deque[tuple[_Item, "Future[_Result]"]], work: Callable[[_Item], _Result]) -> bool:
    """Do the first item that no other thread has begun; False where there is none."""
    for i, (item, future) in enumerate(waiting):
        if future.cancel():
            waiting[i] = (item, Future())
            with one_thread():
                waiting[i][1].set_result(work(item))
            return True
    return False


@functools.cache
def _helpers(n: int, process: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """Threads that wait for work: starting new ones takes too long. A forked process has its own."""
    return ThreadPoolExecutor(n, "sightline", initializer=_take_one_thread)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let operations that are called inside, in this thread, run in this thread alone."""
    n_threads, runtime = torch.get_num_threads(), _runtime()
    if n_threads == 1 or runtime is None:
        yield
        return
    before = _take_one_thread()
    try:
        yield
    finally:
        runtime.set_omp(n_threads)
        if runtime.set_mkl is not None:
            runtime.set_mkl(before)


def _take_one_thread() -> int:
    """Set this thread's numbers of threads to one; what MKL's was, 0 if it went by OpenMP's."""
    runtime = _runtime()
    assert runtime is not None  # noqa: S101
    torch.get_num_threads()  # torch sets them when a thread first asks: not after this
    runtime.set_omp(1)
    return 0 if runtime.set_mkl is None else runtime.set_mkl(1)


@functools.cache
def _runtime() -> _Runtime | None:
    """Find them in what torch has loaded, or None: another system, or torch without OpenMP."""
    if not torch.backends.openmp.is_available():
        return None
    folder = Path(torch.__file__).parent / "lib"
    try:
        set_omp = ctypes.CDLL(None).omp_set_num_threads  # torch loads OpenMP for all to see
        libraries = ctypes.CDLL(str(folder / "libtorch_cpu.so"))
        set_mkl = libraries.MKL_Set_Num_Threads_Local if torch.backends.mkl.is_available() else None
    except (OSError, TypeError, AttributeError):
        return None
    set_omp.restype = None
    return _Runtime(set_omp, set_mkl)
