"""Children that try mistakes: some at the same time, none is lost, none is waited for too long."""

import contextlib
import json
import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from workshop.mutation import trials
from workshop.mutation.trials import TIMEOUT, Trial, together

pytestmark = [
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def starting(do, patience=60.0):
    """What begins a child that does something and says so, or nothing if that is None."""

    def start():
        folder, (reading, writing) = tempfile.mkdtemp(), os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            said = do()
            if said is not None:
                os.write(writing, json.dumps({"end": said, "by": ""}).encode())
            os._exit(0)
        with contextlib.suppress(OSError):  # whoever of the two is first
            os.setpgid(pid, pid)
        os.close(writing)
        return Trial(pid, reading, folder, time.monotonic() + patience)

    return start


def test_some_run_at_the_same_time_and_each_has_its_end(tmp_path):
    def work(number):
        (tmp_path / f"{number}.runs").touch()
        at_once = len(list(tmp_path.glob("*.runs")))
        time.sleep(0.05)
        (tmp_path / f"{number}.runs").unlink()
        return f"{number}, {at_once} at once"

    found = dict(together([starting(lambda n=n: work(n)) for n in range(7)], jobs=3))
    assert [found[n].pop("end").partition(",")[0] for n in range(7)] == [str(n) for n in range(7)]
    ends = dict(together([starting(lambda n=n: work(n)) for n in range(4)], jobs=1)).values()
    assert {end["end"].partition(", ")[2] for end in ends} == {"1 at once"}


def test_who_waits_for_ever_or_dies_is_a_timeout():
    def wait():
        time.sleep(600)

    found = dict(
        together([starting(wait, 0.2), starting(lambda: "survived"), starting(lambda: None)], jobs=2)
    )
    assert {n: end["end"] for n, end in found.items()} == {0: TIMEOUT, 1: "survived", 2: TIMEOUT}


def test_when_time_is_up_the_rest_is_left(monkeypatch):
    pids = []
    clock = SimpleNamespace(monotonic=lambda: 1.0 if len(pids) == 3 else 0.0)
    monkeypatch.setattr(trials, "time", clock)

    def slow():
        time.sleep(600)

    def noting(start):
        trial = start()
        pids.append(trial)
        return trial

    starts = [lambda: noting(starting(lambda: "killed")), *[lambda: noting(starting(slow))] * 3]
    found = dict(together(starts, jobs=2, last=1.0))
    assert {n: end["end"] for n, end in found.items()} == {0: "killed"}
    assert len(pids) == 3
    for trial in pids:
        assert not Path(trial.folder).exists()
        with pytest.raises(ProcessLookupError):
            os.kill(trial.pid, 0)
