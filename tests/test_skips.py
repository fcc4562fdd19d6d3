"""In continuous integration a test that is skipped fails, but for the reasons of tests/skips.txt."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.skips import is_allowed, reasons

ROOT = Path(__file__).parents[1]
SUITE = """
import pytest

def test_allowed():
    pytest.skip("needs a GPU of another kind")

def test_missing():
    pytest.importorskip("no_such_package", reason="no_such_package\\n is missing")

@pytest.mark.xfail(strict=True)
def test_expected_to_fail():
    assert False

def test_passes():
    pass
"""


@pytest.mark.parametrize(
    ("ci", "outcome"),
    [
        ({}, "1 passed, 3 skipped, 1 xfailed"),
        ({"CI": "false"}, "1 passed, 3 skipped, 1 xfailed"),
        ({"CI": "true"}, "1 failed, 1 passed, 1 skipped, 1 xfailed, 1 error"),
        ({"SIGHTLINE_CI": "1"}, "1 failed, 1 passed, 1 skipped, 1 xfailed, 1 error"),
    ],
)
def test_a_skip_is_noted_and_fails_in_continuous_integration(tmp_path, ci, outcome):
    (tmp_path / "test_some.py").write_text(SUITE)
    (tmp_path / "test_whole_file.py").write_text("import pytest\npytest.importorskip('no_such_package')\n")
    environment = {name: value for name, value in os.environ.items() if name not in {"CI", "SIGHTLINE_CI"}}
    words = ["-m", "pytest", "-p", "tests.skips", "--note-skips", "noted.txt"]
    words += ["--rootdir", ".", "-c", os.devnull, "--continue-on-collection-errors"]
    done = subprocess.run(  # noqa: S603
        [sys.executable, *words],
        cwd=tmp_path,
        env=environment | ci | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in done.stdout.splitlines()[-1], done.stdout + done.stderr
    assert done.returncode == ("failed" in outcome.replace("xfailed", ""))
    noted = ["needs a GPU of another kind"]
    if not done.returncode:
        noted += [
            "no_such_package is missing",
            "could not import 'no_such_package': No module named 'no_such_package'",
        ]
    assert sorted((tmp_path / "noted.txt").read_text().splitlines()) == sorted(noted)


def test_the_reasons_are_beginnings():
    assert len(reasons()) > 5
    assert all(is_allowed(f"{reason} and more", {"CI": "true"}) for reason in reasons())
    assert not is_allowed("no Chromium", {"CI": "true"})
    assert not is_allowed("", {"CI": "true"})
