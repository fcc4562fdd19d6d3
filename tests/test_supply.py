"""The lock and the pins."""

import re
from pathlib import Path

import pytest

from tests.pins import pinned

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\\\]+)((?:.|\n(?!\S))*)", LOCK, re.MULTILINE)

pytestmark = pytest.mark.plain


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_package_of_the_lock_has_hashes():
    assert len(ENTRIES) > 80
    assert not [name for name, _, rest in ENTRIES if "--hash=sha256:" not in rest]


def test_the_lock_has_the_versions_of_the_pins():
    pins = {plain(name): version for name, version in pinned().items()}
    different = [(name, version, pins[plain(name)]) for name, version, _ in ENTRIES
                 if pins.get(plain(name), version) != version]  # fmt: skip
    assert not different, "`make lock` writes it"


def test_the_build_back_end_is_pinned():
    text = (ROOT / "pyproject.toml").read_text()
    (back_end,) = re.findall(r'^requires = \["(.*)"\]', text, re.MULTILINE)
    assert f'"{back_end}",' in text
    assert ("hatchling", back_end.partition("==")[2]) in [(name, version) for name, version, _ in ENTRIES]
