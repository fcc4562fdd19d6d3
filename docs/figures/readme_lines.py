# ruff: noqa: INP001
"""Count the lines of the files that README tells to read, and write the counts into its table.

Usage: python docs/figures/readme_lines.py
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAD = "## To understand X, read Y"
LINK = re.compile(r"\]\(([^)]+\.py)\)")


def counted(row: str) -> str:
    """A row of the table with the counts of its files, joined as they were."""
    *cells, numbers, end = row.split("|")
    counts = iter(len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in LINK.findall(row))
    return "|".join([*cells, re.sub(r"\d+", lambda _: str(next(counts)), numbers), end])


def main() -> None:
    """Write README anew."""
    readme = ROOT / "README.md"
    before, head, after = readme.read_text(encoding="utf-8").partition(HEAD)
    lines = [counted(line) if LINK.search(line) else line for line in after.split("\n")]
    readme.write_text(before + head + "\n".join(lines), encoding="utf-8")
    sys.stdout.write("README.md\n")


if __name__ == "__main__":
    main()
