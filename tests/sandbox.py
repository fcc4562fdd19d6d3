"""A command in a child that may not hang, eat the memory or print a traceback.

The child is forked from this process, which has imported everything: a command costs milliseconds.
"""

import contextlib
import gc
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SECONDS = 20.0  # of a processor for one command, most take a tenth; on a busy machine it waits longer
WAITS = 8
MEGABYTES = 3000  # beyond what the process had before the fork
PATHS = re.compile(r"'[^']*'|\"[^\"]*\"")

# Words of other people's sentences. Ours name the rule, the value and the remedy.
FOREIGN = re.compile(
    r"object (is not|has no|cannot|does not)|unsupported operand|positional argument|unexpected keyword|"
    r"Expected .* but got|not supported between|must be real number|invalid literal|cannot be interpreted|"
    r"out of range|size mismatch|shape mismatch|Error\(s\) in loading|\[Errno|codec can't|"
    r"list indices must|string indices must|enforce fail|not implemented for|NoneType|KeyError|IndexError"
)
CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
CODES = {0, 1, 2}


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    words: tuple[str, ...]
    code: int | None  # None: it had to be ended
    out: str
    err: str
    seconds: float
    megabytes: int

    def faults(self) -> list[str]:
        """What is wrong with it: nothing, or a few words for each fault."""
        found = []
        if self.code in {None, -signal.SIGXCPU}:
            found.append("hang")
        elif self.code < 0:
            found.append(f"killed by signal {-self.code}")
        elif self.code not in CODES:
            found.append(f"exit code {self.code}")
        if "Traceback" in self.err:
            found.append("traceback")
        if self.code in {1, 2} and not (self.err.strip() or self.out.strip()):
            found.append("silent")
        if self.code == 2 and FOREIGN.search(PATHS.sub("", _last(self.err))):
            found.append("foreign sentence")
        if CONTROLS.search(_uncoloured(self.out + self.err)):
            found.append("control codes")
        if "--json" in self.words and self.code == 0 and not _is_json(self.out):
            found.append("no JSON")
        return found


def run(call, words=(), *, seconds=SECONDS, megabytes=MEGABYTES):
    """Call a function in a child, bounded in time and memory, and say how it ended."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        sys.stderr.flush()
        started = time.monotonic()
        with _frozen():
            pid = os.fork()
            if pid == 0:
                _child(call, out.fileno(), err.fileno(), seconds, megabytes)
        code, usage = _waited(pid, started + WAITS * seconds)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(_text(file.read(1 << 24)))
    took = time.monotonic() - started
    return Outcome(tuple(words), code, *texts, took, usage // 1024 if usage else 0)


@contextlib.contextmanager
def _frozen():
    """A child's collections leave alone what is there now: it would have to copy those pages."""
    if gc.get_freeze_count():  # somebody has, and for longer
        yield
        return
    gc.freeze()
    yield
    gc.unfreeze()


def command(*words, **limits):
    """Run a command of Sightline's."""
    from sightline.cli import main

    texts = [str(word) for word in words]
    return run(lambda: main(texts), texts, **limits)


def commands(lines, **limits):
    """Run commands one after the other in one child, which is faster; what is wrong is run again, alone.

    A child ends at the first command that is wrong, that hangs or that dies; the rest get another.
    """
    from sightline.cli import main

    left = [[str(word) for word in words] for words in lines]
    while left:
        yes, done = 0, _together(main, left, **limits)
        for outcome in done:
            if outcome.faults():
                break
            yes += 1
            yield outcome
        left = left[yes:]
        if left:
            yield command(*left.pop(0), **limits)


def _together(main, lines, *, seconds=SECONDS, megabytes=MEGABYTES):
    """The outcomes of as many of the commands as one child did."""
    with tempfile.TemporaryDirectory() as place:

        def file(name):
            return os.open(f"{place}/{name}", os.O_WRONLY | os.O_CREAT)

        def call():
            for i, words in enumerate(lines):
                started, status = time.monotonic(), 0
                for target, name in ((1, f"{i}.out"), (2, f"{i}.err")):
                    opened = file(name)
                    os.dup2(opened, target)
                    os.close(opened)
                _limit_time(seconds)
                try:
                    main(words)
                except SystemExit as ended:
                    status = _status(ended)
                sys.stdout.flush()
                sys.stderr.flush()
                Path(place, f"{i}.code").write_text(f"{status} {time.monotonic() - started}")

        run(call, seconds=seconds, megabytes=megabytes)
        done = []
        for i, words in enumerate(lines):
            ended = Path(place, f"{i}.code")
            if not ended.exists():
                break
            status, took = ended.read_text().split()
            out, err = (_text(Path(place, f"{i}.{name}").read_bytes()) for name in ("out", "err"))
            done.append(Outcome(tuple(words), int(status), out, err, float(took), 0))
    return done


def _text(content):
    return content[: 1 << 24].decode("utf-8", "surrogateescape")


def _limit_time(seconds):
    """From now on, of the processor; the last limit is for all that a child does."""
    spent = int(time.process_time()) + max(1, int(seconds))
    resource.setrlimit(resource.RLIMIT_CPU, (spent, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _status(ended):
    return ended.code if isinstance(ended.code, int) else int(ended.code is not None)


def _child(call, out, err, seconds, megabytes):
    """What the child does; it never comes back."""
    status = 70
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        null = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, null), (1, out), (2, err)):
            os.dup2(source, target)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        used = _data_bytes()
        resource.setrlimit(resource.RLIMIT_DATA, (used + (megabytes << 20),) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _limit_time(seconds)
        call()
        status = 0
    except SystemExit as ended:
        status = _status(ended)
    except BaseException:  # noqa: BLE001 - what a user would see
        import traceback

        traceback.print_exc()
        status = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # what can't be printed is no use
                stream.flush()
        os._exit(status)


def _waited(pid, end):
    """The exit code, or None of a child that had to be ended; and the most memory it had, in kilobytes."""
    pause = 0.0005
    while True:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), usage.ru_maxrss
        if time.monotonic() > end:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError):
                    kill(pid, signal.SIGKILL)
            os.wait4(pid, 0)
            return None, None
        time.sleep(pause)
        pause = min(0.02, 1.3 * pause)


def _data_bytes():
    text = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmData:\s*(\d+)", text)[1])


def _last(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _uncoloured(text):
    """Without the colours of our own tables."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", "")


def _is_json(text):
    def refuse(name):
        raise ValueError(name)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True
