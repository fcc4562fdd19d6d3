"""The versions that constraints.txt pins, for tests of what another version of a library shows otherwise."""

import re
from importlib import metadata
from pathlib import Path

import pytest

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"


def pinned():
    """The version of each package that is pinned."""
    return dict(re.findall(r"^([^=<\n]+)==(.+)$", CONSTRAINTS.read_text(), re.MULTILINE))


def skip_unless_pinned(package):
    """Skip a test of what a library draws where the library is another version than the one that drew it."""
    wanted, found = pinned()[package], metadata.version(package)
    if found != wanted:
        pytest.skip(f"written with {package} {wanted}, this is {found}")
