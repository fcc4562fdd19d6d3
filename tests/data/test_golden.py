"""Every layout keeps its names, splits, digests and sentences: a run only resumes with the same data.

``tests/golden/data/<kind>/<layout>`` holds the files and what was made of them when they were frozen.
"""

import json

import pytest

from tests.data.recorded import LAYOUTS, packed_as, recorded

ONLY_FOLDERS = ("tar", "parquet_shards", "npz")  # files that are found in a folder, or named themselves
CASES = [
    (path, form)
    for path in LAYOUTS
    for form in (("folder",) if path.name.startswith(ONLY_FOLDERS) else ("folder", "zip"))
]


@pytest.mark.parametrize(
    ("layout", "form"), CASES, ids=[f"{path.parent.name}-{path.name}-{form}" for path, form in CASES]
)
def test_a_layout_is_read_as_it_was(layout, form, tmp_path):
    place = packed_as(layout / "files", form, tmp_path)
    if layout.name.startswith("npz"):
        (place,) = place.iterdir()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    expected = json.loads((layout / "expected.json").read_text(encoding="utf-8"))
    assert recorded(place, layout.parent.name) == expected
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
