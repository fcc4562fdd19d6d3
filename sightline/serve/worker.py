"""One thread runs the model. Work waits in lanes, each with a bound; a full lane refuses at once."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

__all__ = ["Busy", "Place", "Worker"]


class Busy(Exception):  # noqa: N818  the name says what the server is
    """All places of a lane are taken.

    Attributes:
        seconds: When to try again.
    """

    def __init__(self, seconds: int = 1) -> None:
        super().__init__("the model is busy")
        self.seconds = seconds


class Place:
    """A place in a lane, which holds one piece of work at most."""

    def __init__(self, worker: "Worker", lane: str) -> None:
        self._worker, self._lane = worker, lane
        self._work: Future[Any] | None = None

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Have the thread do this when its turn comes."""
        self._work = self._worker._add(self._lane, work)  # noqa: SLF001 - a place is a part of its worker
        return self._work

    def leave(self) -> None:
        """Take back what has not begun."""
        if self._work is not None:
            self._work.cancel()


class Worker:
    """A thread with lanes before it; the work of an earlier lane is done first.

    Args:
        lanes: How many places each lane has, by its name.

    Example:
        >>> worker = Worker({"look": 1})
        >>> with worker.place("look") as place:
        ...     place.submit(lambda: 6 * 7).result()
        42
        >>> worker.stop()
    """

    def __init__(self, lanes: Mapping[str, int]) -> None:
        self.limits = dict(lanes)
        self.taken = dict.fromkeys(lanes, 0)  # places taken now
        self.peak = dict.fromkeys(lanes, 0)  # the most that were ever taken
        self._queues: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {x: deque() for x in lanes}
        self._change = threading.Condition()
        self._stopped = False
        threading.Thread(target=self._run, name="model", daemon=True).start()

    @contextmanager
    def place(self, lane: str) -> Iterator[Place]:
        """Take a place in a lane; it is free again after the block, and work that has not begun is dropped.

        Raises:
            Busy: If there is none.
        """
        with self._change:
            if self.taken[lane] >= self.limits[lane]:
                raise Busy
            self.taken[lane] += 1
            self.peak[lane] = max(self.peak[lane], self.taken[lane])
        place = Place(self, lane)
        try:
            yield place
        finally:
            place.leave()
            with self._change:
                self.taken[lane] -= 1
                self._queues[lane] = deque(x for x in self._queues[lane] if not x[0].cancelled())

    def stop(self) -> None:
        """End the thread after what it does now; nothing that waits is begun."""
        with self._change:
            self._stopped = True
            self._change.notify()

    def _add(self, lane: str, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        with self._change:
            self._queues[lane].append((future, work))
            self._change.notify()
        return future

    def _run(self) -> None:
        while (taken := self._next()) is not None:
            future, work = taken
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as problem:  # noqa: BLE001 - it is the asker's
                    future.set_exception(problem)
            del taken, future, work  # or the last input would stay until the next one comes

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Wait for work; None when it is time to end."""
        with self._change:
            while not self._stopped:
                for queue in self._queues.values():
                    if queue:
                        return queue.popleft()
                self._change.wait()
        return None
