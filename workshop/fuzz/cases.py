"""The cases of a fuzzer: each has a number, and a generator of its own from the seed and that number.

Whoever takes a number makes the same case of it: one process that takes all of them, or several that share
them.
"""

import multiprocessing
import random
import time
import traceback

FORK = multiprocessing.get_context("fork")  # all is imported already, and what lies in memory is there


class Cases:
    """Numbers with generators, until there are no more, time is up, or somebody says stop.

    Processes that are forked from the one that made it take from the same numbers, each of them once.
    """

    def __init__(self, name, seed, *, count=None, seconds=None):
        self.name, self.seed = name, seed
        self.count = count
        self.end = None if seconds is None else time.monotonic() + seconds
        self._next = FORK.Value("q", 0)
        self._stopped = FORK.RawValue("b", 0)

    def __iter__(self):
        return self

    def __next__(self):
        """The next number and its generator."""
        if self._stopped.value or (self.end is not None and time.monotonic() >= self.end):
            raise StopIteration
        with self._next.get_lock():
            number = self._next.value
            if self.count is not None and number >= self.count:
                raise StopIteration
            self._next.value += 1
        return number, self.chance(number)

    def chance(self, number):
        """The generator of a case; or, by a name, one that all of them share."""
        return random.Random(f"{self.seed} {self.name} {number}")  # noqa: S311 - a seed makes the same cases

    def stop(self):
        """Give no more, in any process; safe in a handler of a signal."""
        self._stopped.value = 1


def in_processes(call, jobs):
    """Call a function in forked processes, all at the same time, with their numbers; what they returned.

    One that died or raised is a ``RuntimeError`` in the list, with what it said.
    """
    pipes, started = [], []
    for number in range(jobs):
        reading, writing = FORK.Pipe(duplex=False)
        process = FORK.Process(target=_send, args=(call, number, writing))
        process.start()
        writing.close()
        pipes.append(reading)
        started.append(process)
    results = []
    for reading, process in zip(pipes, started, strict=True):
        try:
            results.append(reading.recv())
        except EOFError:
            process.join()
            results.append(RuntimeError(f"a process of the fuzzer died, {process.exitcode}"))
        process.join()
    return results


def _send(call, number, writing):
    try:
        result = call(number)
    except Exception:  # noqa: BLE001 - the other side says it
        result = RuntimeError(f"a process of the fuzzer ended: {traceback.format_exc()[-2000:]}")
    writing.send(result)
