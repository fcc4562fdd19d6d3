"""Golden files: written down once and compared ever after. ``GOLDEN=write pytest FILE`` writes them anew.

Do that only where a change is meant, read the difference, and say in the change log what became of it.
"""

import json
import os
from pathlib import Path

HERE = Path(__file__).parent


def is_writing():
    """Whether golden files are to be written anew."""
    return os.environ.get("GOLDEN") == "write"


def written(name, found=None):
    """What a golden file holds; ``found``, if they are to be written anew."""
    path = HERE / name
    if is_writing() and found is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))


def same_as_written(name, found):
    """Check a value of several entries against its golden file, and name the entries that differ."""
    expected = written(name, found)
    assert list(differences(found, expected)) == [], (
        f"tests/golden/{name} differs; GOLDEN=write if it is meant"
    )


def differences(found, expected):
    """A line for each entry that has come, gone or changed."""
    for key in sorted({*found, *expected}):
        if key not in found:
            yield f"gone: {key}: {expected[key]}"
        elif key not in expected:
            yield f"new: {key}: {found[key]}"
        elif isinstance(found[key], dict) and isinstance(expected[key], dict):
            yield from (f"{key}: {line}" for line in differences(found[key], expected[key]))
        elif found[key] != expected[key]:
            yield f"changed: {key}: {expected[key]} -> {found[key]}"


def no_more_than_written(name, found):
    """Check that a list holds nothing that its golden file has not: it may only shrink."""
    more = sorted(set(found) - set(written(name, sorted(found))))
    assert more == [], f"tests/golden/{name} may only shrink"
