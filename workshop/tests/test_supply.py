"""The licences and the bill of materials of what is installed."""

import json
from importlib import metadata

from workshop.release import supply


def test_licences_of_what_is_installed_are_known():
    locked = {*supply.locked_hashes(), "torch"}
    rows = [row for row in supply.packages() if row["name"] in locked]
    assert len(rows) > 50
    bad = [row for row in rows if not any(good in row["licence"] for good in (*supply.GOOD, supply.NVIDIA))]
    assert not bad


def test_the_bill_of_materials_names_what_is_installed(tmp_path):
    supply.sbom(tmp_path / "sbom.json")
    content = json.loads((tmp_path / "sbom.json").read_text())
    assert content["bomFormat"] == "CycloneDX"
    found = {component["name"]: component for component in content["components"]}
    assert found["safetensors"]["hashes"]
    assert found["torch"]["purl"].startswith(f"pkg:pypi/torch@{metadata.version('torch')}".split("+")[0])
