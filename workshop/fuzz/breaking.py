"""What goes wrong in a process that trains: it is armed in a child, just before the command is given."""

import ctypes
import errno
import os
import random
import resource
import signal
import sys
import time

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "shutil.rmtree"}
PAGE = 4096
_NEW_MOUNTS, _PRIVATE, _REMOUNT = 0x20000, 0x44000, 0x20  # of <sched.h> and <sys/mount.h>


def arm(fault, at, number, size):
    """Have a fault happen in this process.

    Args:
        fault: One of those in faults.py.
        at: The change of the file system, the step, or the thousandth of the time where it happens.
        number: Of the signal.
        size: The most bytes of a file.
    """
    if fault == "kill":
        at_changes(lambda n: os.kill(os.getpid(), signal.SIGKILL) if n == at else None)
    elif fault == "signal":
        at_changes(lambda n: signal.raise_signal(number) if n == at else None)
    elif fault in {"no space", "read only"}:
        code = errno.ENOSPC if fault == "no space" else errno.EACCES
        at_changes(lambda n: _refuse(code) if n == at else None)
    elif fault == "too large":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    elif fault == "clock":
        _jump()
    elif fault in {"memory", "worker"}:
        _break_a_step(fault, 1 + at % 4)


def die_after(seconds):
    """End this process after some processor time: by the system, at whatever instruction it is then.

    The signal's default is as abrupt as SIGKILL, and no handler of Python's stands before it, which would
    wait for the end of an instruction of Python's.
    """
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def at_changes(call):
    """Call with the number of each change of the file system, just before it happens."""
    state = {"n": 0, "inside": False}

    def hook(event, args):
        change = event in CHANGES or (event == "open" and _writes(args))
        if not change or state["inside"]:
            return
        state["inside"] = True
        try:
            n, state["n"] = state["n"], state["n"] + 1
            call(n)
        finally:
            state["inside"] = False

    sys.addaudithook(hook)


def _writes(args):
    path, mode, flags = (*args, None, None, None)[:3]
    if not isinstance(path, str | bytes | os.PathLike) or str(path).startswith(("/dev/", "/proc/")):
        return False
    if isinstance(mode, str):
        return any(sign in mode for sign in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def mount_disk(place, pages):
    """Give a folder a disk of its own, of some pages, that only this process and its children have.

    Raises:
        PermissionError: To who is not root.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.unshare(_NEW_MOUNTS))
    _checked(libc.mount(b"none", b"/", None, _PRIVATE, None))
    _checked(libc.mount(b"none", os.fsencode(place), b"tmpfs", 0, b"size=%d" % (pages * PAGE)))


def enlarge_disk(place, megabytes):
    """Make room on it."""
    options = b"size=%dm" % megabytes
    _checked(
        ctypes.CDLL(None, use_errno=True).mount(b"none", os.fsencode(place), b"tmpfs", _REMOUNT, options)
    )


def _checked(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _refuse(code):
    raise OSError(code, os.strerror(code))


def _jump():
    chance = random.Random(7)  # noqa: S311
    then = time.time()
    time.time = lambda: then + chance.uniform(-1e9, 1e9)


def _break_a_step(fault, step):
    """The n-th step, or what loads its batch, raises."""
    import torch

    from sightline.train import loop, stepping

    seen = {"n": 0}

    def broken(self, *args, **options):
        seen["n"] += 1
        if seen["n"] == step:
            if fault == "memory":
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return before(self, *args, **options)

    owner, name = (stepping.Stepper, "step") if fault == "memory" else (loop._Trainer, "_loaded")
    before = getattr(owner, name)
    setattr(owner, name, broken)
