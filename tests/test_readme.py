"""What README.md and CONTRIBUTING.md tell to read: the files are there, and about as long as they say."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE = (ROOT / "README.md").read_text().split("## To understand X, read Y")[1].split("\n## ")[0]
ROWS = [line.strip("|").split("|") for line in TABLE.splitlines() if line.startswith("| ")][1:]


def test_the_table_is_found():
    assert len(ROWS) >= 9
    assert all(len(row) == 3 for row in ROWS)


@pytest.mark.parametrize(("read", "counts"), [row[1:] for row in ROWS], ids=[row[0].strip() for row in ROWS])
def test_a_count_of_lines_is_that_of_its_file_but_for_a_tenth(read, counts):
    linked = [ROOT / path for path in re.findall(r"\]\(([^)]+)\)", read)]
    assert linked
    assert all(path.exists() for path in linked)
    actual = [len(path.read_text().splitlines()) for path in linked if path.suffix == ".py"]
    assert [int(count) for count in re.findall(r"\d+", counts)] == pytest.approx(actual, rel=0.1)


def test_the_first_page_stays_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 110  # it had 214
    assert len(text.split()) <= 1050  # it had 2,063


def test_counts_are_written_anew():
    script = runpy.run_path(str(ROOT / "docs/figures/readme_lines.py"))
    row = "| x | [`a`](sightline/shapes.py); [`b`](sightline/palette.py) | 1; 2 |"
    n, m = (len((ROOT / f"sightline/{name}.py").read_text().splitlines()) for name in ("shapes", "palette"))
    assert script["counted"](row) == row.replace("1; 2", f"{n}; {m}")


def test_the_files_that_contributing_names_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"\]\(((?:sightline|tests)/[^)]+|[A-Z]+\.md)\)", text) + re.findall(
        r"`((?:tests|docs/\w+)/[\w/]+\.py)`", text
    )
    assert len(named) > 12
    assert not [path for path in named if not (ROOT / path).exists()]
