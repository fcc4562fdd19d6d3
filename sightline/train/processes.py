"""The processes that train together: which one this is, what each does, and how they end with one voice.

    torchrun --nproc-per-node 4 -m sightline train ...       starts four; so does `accelerate launch`

``join`` makes them one group of torch.distributed. ``spread`` deals the work of an evaluation and hands every
process all results, in the order that one process would have them in. ``together`` makes the trouble of one
the trouble of all. What ends a training is said by the process that is first to say it, and by no other.

Alone, every function here does the plain thing and costs nothing.
"""

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from sightline.messages import logger
from sightline.train.launch import launched, process_share

__all__ = [
    "ProcessLost",
    "any_process",
    "from_main",
    "gather",
    "is_main_process",
    "join",
    "leave",
    "own_gpu",
    "print_lines_once",
    "process_index",
    "process_lost",
    "say_once",
    "spread",
    "together",
    "watch_for_the_end",
    "world_size",
]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_LONGEST_WAIT = timedelta(minutes=30)  # of a process for another that is there and slow
_MEETING = timedelta(minutes=2)  # for the first contact
_SPEECH = timedelta(seconds=5)  # to let the one that speaks end its sentence
_LAUNCHERS_PATIENCE = 25.0  # seconds; torchrun kills 30 after its signal
_NOTHING = b"\0"
_ENDS = (_NOTHING, b"", bytes([signal.SIGINT]), bytes([signal.SIGTERM]))
_LOST = ("gloo", "NCCL", "Connection closed by peer", "Connection reset", "ProcessGroup", "TCPStore")

_store: list[Any] = []  # the launcher's, once it was looked for


class ProcessLost(ConnectionError):  # noqa: N818 - as Interrupted
    """Another process has ended, and the rest can't go on without it."""


def process_index() -> int:
    """The number of this process, from 0; known before a group is made."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    return process_share()[0] if launched() else 0


def world_size() -> int:
    """How many processes there are; 1 until they have joined."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def is_main_process() -> bool:
    """Whether this process writes for all."""
    return process_index() == 0


def own_gpu() -> int:
    """The number of this process's GPU on its machine: that of its LOCAL_RANK."""
    local = os.environ.get("LOCAL_RANK", "0")
    return int(local) % torch.cuda.device_count() if local.isdecimal() else 0


def join() -> None:
    """Make one group of the processes that were launched; nothing where there is one, or a group already.

    Tensors of the CPU travel by gloo and those of a GPU by nccl; each process has the GPU of its LOCAL_RANK.
    No wait for another process is longer than half an hour.
    """
    if not launched() or dist.is_initialized():
        return
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(own_gpu())
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(
        backend,
        store=PrefixStore("group", _shared_store(_LONGEST_WAIT)),
        rank=process_index(),
        world_size=process_share()[1],
        timeout=_LONGEST_WAIT,
    )


def leave() -> None:
    """Part, when all is done."""
    if launched() and dist.is_initialized():
        dist.destroy_process_group()


def gather(value: _Result) -> list[_Result]:
    """What each process has, in the order of the processes, for all of them."""
    everything: list[Any] = [None] * world_size()
    try:
        dist.all_gather_object(everything, value)
    except RuntimeError as problem:
        if not process_lost(problem):
            raise
        raise ProcessLost(f"one of the {world_size()} processes has ended, and the rest with it") from problem
    return everything


def any_process(value: bool) -> bool:
    """Whether it is true in any process."""
    return value if world_size() == 1 else any(gather(value))


@contextmanager
def together() -> Iterator[None]:
    """What one process raises in this block all raise, so that none waits for one that has ended.

    In the block no process may wait for another.
    """
    if world_size() == 1:
        yield
        return
    own: Exception | None = None
    try:
        yield
    except Exception as problem:  # noqa: BLE001 - raised again below
        own = problem
    _raise_first(gather(None if own is None else _portable(own)), own)


def from_main(compute: Callable[[], _Result]) -> _Result:
    """What the main process computes, for all: where the same work may end differently in each."""
    if world_size() == 1:
        return compute()
    own: Any = None
    with together():
        if is_main_process():
            own = compute()
    return gather(own)[0]


def spread(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """``map(function, items)``, where each process does every n-th item, and all get all results in order.

    Every process must be handed the same items. An item is whole: whatever the number of processes, the
    function is called with the same arguments, so results are those of one process.

    Raises:
        Exception: What the function raised for the first item of a round that it could not do.
    """
    if world_size() == 1:
        yield from map(function, items)
        return
    rank, n = dist.get_rank(), world_size()
    for some in _rounds(items, n):
        own: Exception | None = None
        result: _Result | None = None
        if rank < len(some):
            try:
                result = function(some[rank])
            except Exception as problem:  # noqa: BLE001 - raised again below
                own = problem
        found = gather((None if own is None else _portable(own), result))
        _raise_first([problem for problem, _ in found], own)
        yield from (value for _, value in found[: len(some)])  # type: ignore[misc]


def _rounds(items: Iterable[_Item], n: int) -> Iterator[Sequence[_Item]]:
    some: list[_Item] = []
    for item in items:
        some.append(item)
        if len(some) == n:
            yield some
            some = []
    if some:
        yield some


def _portable(problem: Exception) -> Exception:
    """The same trouble with its sentence alone, which every process can be sent."""
    kind = next((k for k in (ValueError, OSError, MemoryError) if isinstance(problem, k)), RuntimeError)
    return kind(str(problem))


def _raise_first(problems: Sequence[Exception | None], own: Exception | None) -> None:
    first = next((problem for problem in problems if problem is not None), None)
    if first is not None:
        raise own or first


# How they end


def process_lost(problem: BaseException) -> bool:
    """Whether this is what torch raises where another process has ended: it has no one name for it."""
    if isinstance(problem, ProcessLost):
        return True
    if world_size() == 1 or not isinstance(problem, RuntimeError):
        return False
    return isinstance(problem, dist.DistError) or any(word in str(problem) for word in _LOST)


def say_once(text: str) -> None:
    """Write to standard error, if no other process has said how this ended; wait for the one that does.

    Where the launcher's store can't be reached the text is written: better twice than never.
    """
    if not launched():
        sys.stderr.write(text)
        return
    store: Any = None
    speaks = True
    with contextlib.suppress(Exception):
        store = _shared_store(_SPEECH)
        speaks = store.add("speakers", 1) == 1
    if speaks:
        sys.stderr.write(text)
        sys.stderr.flush()
    if store is None:
        return
    with contextlib.suppress(Exception):
        if store.add("leaving", 1) == process_share()[1]:
            store.set("all", "")
        end = time.monotonic() + _SPEECH.total_seconds()
        # A launcher ends all when it sees one end: let those come here that are on their way.
        while not store.check(["all"]) and time.monotonic() < end:
            time.sleep(0.02)


def print_lines_once() -> None:
    """Let the main process alone print; a warning, which may be of one alone, whichever is first to."""
    if not launched():
        return
    logger.addFilter(_is_first)
    if not is_main_process():
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - to the very end


def _is_first(record: logging.LogRecord) -> bool:
    """Whether this process is to print a line."""
    if record.levelno < logging.WARNING:
        return is_main_process()
    try:
        return bool(_shared_store(_SPEECH).add(f"line {record.getMessage()}", 1) == 1)
    except Exception:  # noqa: BLE001 - whatever keeps it from being known
        return True


def _shared_store(wait: timedelta) -> Any:
    """The launcher's store of keys and values, which outlives a process where torchrun keeps it."""
    if not _store:
        _store.append(next(rendezvous("env://", timeout=max(wait, _MEETING)))[0])
    return _store[0]


@contextmanager
def watch_for_the_end(sentence: Callable[[], str]) -> Iterator[None]:
    """End with a sentence where a signal came and this process does not get to act on it.

    One that waits on the device for a process that has ended can't be told so by Python. A thread is told of
    the signal by the system; if the process is still there when the launcher is about to kill it, the thread
    says the sentence and ends it.
    """
    if not launched() or threading.current_thread() is not threading.main_thread():
        yield
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    over = threading.Event()

    def wait() -> None:
        number = receiver.recv(1)
        while number not in _ENDS:
            number = receiver.recv(1)
        if number != _NOTHING and not over.wait(_LAUNCHERS_PATIENCE):
            say_once(f"{sentence()}\n")
            os._exit(128 + number[0])

    thread = threading.Thread(target=wait, name="the end", daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        with contextlib.suppress(OSError):
            sender.send(_NOTHING)
        thread.join()
        receiver.close()
        sender.close()
