"""The table of docs/lookup/textbook.md: what it names is there, near the line it says, and run by a test."""

import re

import pytest

from workshop import ROOT
from workshop.pages import textbook_table as script

NEAR = 25  # lines that a definition may have moved before the table must be written anew
LINK = re.compile(r"\[`(\w+)`\]\(\.\./\.\./([\w/.]+)#L(\d+)\)")
THERE = {  # what each document numbers
    "000": ["Home work 8", "Figure 1"],
    "001": [f"Exercise {n}" for n in range(1, 5)],
    "002": ["Exercise 1", "Exercise 2"],
    "003": ["Self-attention", "MultiHead", "Positions", "Full architecture", "caption"],
    "004": [
        *(f"Definition {n}" for n in ("1.1", "1.2", "2.1", "2.2", "2.3")),
        *(f"Example {n}" for n in ("1.1", "1.2", "2.1")),
        "figure 1",
        "Figure 2",
    ],
}


@pytest.fixture(scope="module")
def page():
    return (ROOT / "docs" / "lookup" / "textbook.md").read_text()


@pytest.mark.parametrize("document", THERE)
def test_everything_numbered_has_a_row_and_every_row_a_test(page, document):
    rows = script.TABLE[document]
    told = " ".join(what for what, _, _ in rows)
    for label in THERE[document]:
        assert label in told, label
    tests = (ROOT / "tests" / "textbook" / f"test_{document}.py").read_text()
    for what, places, test in rows:
        assert f"def {test}(" in tests, test
        assert f"| {what} |" in page, f"{what}: run python -m workshop.pages"
        for place in places:
            file, _, name = place.partition("::")
            assert (ROOT / file).exists(), place
            assert not name or script.line_of(ROOT / file, name)


def test_every_equation_of_the_notes_has_a_row():
    told = " ".join(what for what, _, _ in script.TABLE["004"])
    told = told.replace("(8) to (12)", "(8) (9) (10) (11) (12)")
    assert [n for n in range(1, 19) if f"({n})" not in told] == []


def test_lines_are_near(page):
    links = LINK.findall(page)
    assert len(links) > 50
    for name, file, line in links:
        there = script.line_of(ROOT / file, name)
        assert abs(there - int(line)) <= NEAR, f"{name} is at {file}:{there}: run python -m workshop.pages"
