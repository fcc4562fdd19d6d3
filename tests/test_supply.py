"""The lock, the pins and the licences."""

import importlib.util
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


@pytest.fixture(scope="module")
def supply():
    spec = importlib.util.spec_from_file_location("supply", ROOT / ".ci/supply.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_package_of_the_lock_has_hashes():
    assert len(ENTRIES) > 80
    assert not [name for name, _, rest in ENTRIES if "--hash=sha256:" not in rest]


def test_the_lock_has_the_versions_of_the_pins():
    pins = {plain(name): version for name, version in pinned().items()}
    different = [(name, version, pins[plain(name)]) for name, version, _ in ENTRIES
                 if pins.get(plain(name), version) != version]  # fmt: skip
    assert not different, "make lock writes it anew"


def test_the_build_back_end_is_pinned():
    text = (ROOT / "pyproject.toml").read_text()
    (back_end,) = re.findall(r'^requires = \["(.*)"\]', text, re.MULTILINE)
    assert f'"{back_end}",' in text
    assert ("hatchling", back_end.partition("==")[2]) in [(name, version) for name, version, _ in ENTRIES]


def test_licences_of_what_is_installed_are_known(supply):
    locked = {plain(name) for name, _, _ in ENTRIES} | {"torch"}
    rows = [row for row in supply.packages() if row["name"] in locked]
    assert len(rows) > 50
    bad = [row for row in rows if not any(good in row["licence"] for good in (*supply.GOOD, supply.NVIDIA))]
    assert not bad


def test_the_bill_of_materials_names_what_is_installed(supply, tmp_path):
    import json
    from importlib import metadata

    supply.sbom(tmp_path / "sbom.json")
    content = json.loads((tmp_path / "sbom.json").read_text())
    assert content["bomFormat"] == "CycloneDX"
    found = {component["name"]: component for component in content["components"]}
    assert found["safetensors"]["hashes"]
    assert found["torch"]["purl"].startswith(f"pkg:pypi/torch@{metadata.version('torch')}".split("+")[0])
