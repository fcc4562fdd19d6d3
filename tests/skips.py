"""What a run leaves untested: noted by reason, and in continuous integration a failure."""

import os
from pathlib import Path

import pytest

__all__ = ["is_allowed", "reasons"]

_ALLOWED = Path(__file__).with_name("skips.txt")


def reasons():
    """The beginnings of the reasons for which a test may be skipped everywhere."""
    lines = _ALLOWED.read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def is_allowed(reason, environment=os.environ):
    """Whether a test may be skipped for a reason: in continuous integration for those of skips.txt alone."""
    in_ci = any(environment.get(name, "") not in {"", "0", "false"} for name in ("CI", "SIGHTLINE_CI"))
    return not in_ci or reason.startswith(reasons())


def pytest_addoption(parser):
    """Add `--note-skips`."""
    parser.addoption("--note-skips", metavar="FILE", help="add the reason of each test that is skipped")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport():
    """Judge a test that was skipped."""
    return _judged((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report():
    """Judge a file that was."""
    return _judged((yield))


def pytest_terminal_summary(terminalreporter, config):
    """Add to the file what this process skipped, at once: others write to it too."""
    if path := config.getoption("--note-skips"):
        lines = [f"{_reason(report)}\n" for report in terminalreporter.stats.get("skipped", [])]
        with Path(path).open("a", encoding="utf-8") as file:
            file.write("".join(lines))


def _judged(report):
    if report.skipped and not hasattr(report, "wasxfail") and not is_allowed(_reason(report)):
        report.longrepr = f"skipped, which {_ALLOWED.name} does not allow here: {_reason(report)}"
        report.outcome = "failed"
    return report


def _reason(report):
    return " ".join(report.longrepr[2].removeprefix("Skipped: ").split())
