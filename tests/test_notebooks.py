"""The notebooks are those that the pages give, and run from the first cell to the last."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = ("mechanism", "watch_your_own_model", "caption_your_own_folder", "explorer_in_a_cell")

pytestmark = pytest.mark.plain


@pytest.fixture(scope="module")
def made():
    sys.path.insert(0, str(ROOT / "docs/figures"))
    try:
        import notebooks
    finally:
        sys.path.pop(0)
    return notebooks


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_what_its_pages_give_and_runs(made, name, tmp_path, monkeypatch):
    written = (ROOT / f"docs/notebooks/{name}.ipynb").read_text(encoding="utf-8")
    assert written == made.text_of(name), "`make pages` writes it anew"
    monkeypatch.chdir(tmp_path)
    space = {}
    codes = ["".join(cell["source"]) for cell in json.loads(written)["cells"] if cell["cell_type"] == "code"]
    assert len(codes) > 1
    for number, code in enumerate(codes):
        exec(compile(code, f"{name}[{number}]", "exec"), space)  # noqa: S102  our own


def test_what_was_printed_is_left_out(made):
    cells = made.cells_of(
        "# A\n\n```python\n>>> x = 1\n>>> for i in [x]:\n...     x += i\n>>> x\n2\n\n```\n\nEnd.\n"
    )
    assert cells == [
        ("markdown", "# A"),
        ("code", "x = 1\nfor i in [x]:\n    x += i\nx"),
        ("markdown", "End."),
    ]
    space = {}
    exec(cells[1][1], space)  # noqa: S102
    assert space["x"] == 2


def test_every_notebook_is_made(made):
    assert (
        set(NAMES) == set(made.NOTEBOOKS) == {path.stem for path in (ROOT / "docs/notebooks").glob("*.ipynb")}
    )
