"""Groups of processes in tests, forked from one that has imported everything, with a launcher's environment.

group = Group(2, lambda: fit(...), place).end()
group.codes, group.errors          how each process ended, and what all of them wrote to standard error
"""

import contextlib
import os
import signal
import socket
import sys
import time

__all__ = ["Group"]

_LONGEST = 400  # seconds; only processes that hang take so long


class Group:
    """Processes that run a function together; one alone gets no launcher's environment."""

    def __init__(self, n, function, place):
        place.mkdir(parents=True, exist_ok=True)
        self.err, self.codes = place / "stderr.txt", []
        port = _free_port()
        sys.stdout.flush()
        self.err.write_text("")
        self.pids = [self._fork(rank, n, port, function) for rank in range(n)]

    def _fork(self, rank, n, port, function):
        pid = os.fork()
        if pid:
            return pid
        code = 70
        try:
            file = os.open(self.err, os.O_WRONLY | os.O_APPEND)
            os.dup2(file, 2)
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
            if n > 1:
                os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n)}
                os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                os.environ |= {"LOCAL_WORLD_SIZE": str(n)}
            function()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        except BaseException:  # noqa: BLE001 - printed for whoever reads the test
            import traceback

            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def end(self):
        """Wait for all; those that hang are killed, and their code says so."""
        end = time.monotonic() + _LONGEST
        for pid in self.pids:
            while True:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    break
                if time.monotonic() > end:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.002)
            self.codes.append(os.waitstatus_to_exitcode(status))
        return self

    @property
    def errors(self):
        """What they wrote."""
        return self.err.read_text()


def _free_port():
    """A port that nobody has, below those that the system hands out unasked."""
    for port in range(20_000 + os.getpid() % 9_000, 32_000):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")
