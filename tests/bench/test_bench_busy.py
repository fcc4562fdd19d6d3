"""A busy machine: the counting processes live as long as the block, and no longer."""

import subprocess

import pytest

from sightline.bench import busy


def test_they_run_inside_the_block_and_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    start = subprocess.Popen

    def remember(*args, **kwargs):
        started.append(start(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", remember)
    with busy.busy_cores(3) as n:
        assert n == len(started) == 3
        assert all(process.poll() is None for process in started)
    assert all(process.poll() is not None for process in started)


def test_all_cores_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy, "_cores", lambda: 2)
    with busy.busy_cores() as n:
        assert n == 2
