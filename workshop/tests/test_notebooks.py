"""The notebooks are those that the how-to pages give."""

import pytest

from workshop import DOCS
from workshop.pages import notebooks


@pytest.mark.parametrize("name", notebooks.NOTEBOOKS)
def test_a_notebook_is_what_its_pages_give(name):
    written = (DOCS / f"notebooks/{name}.ipynb").read_text(encoding="utf-8")
    assert written == notebooks.text_of(name), "`python -m workshop.pages notebooks` writes it"


def test_what_was_printed_is_left_out():
    cells = notebooks.cells_of(
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


def test_every_notebook_is_made():
    assert set(notebooks.NOTEBOOKS) == {path.stem for path in (DOCS / "notebooks").glob("*.ipynb")}
