"""Every notebook of the documentation runs from the first cell to the last."""

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs/notebooks").glob("*.ipynb"))

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(codes) > 1
    space = {}
    for number, code in enumerate(codes):
        exec(compile(code, f"{path.stem}[{number}]", "exec"), space)  # noqa: S102  our own


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 4
