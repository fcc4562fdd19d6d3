# ruff: noqa: INP001
"""Write the pages of the reference that come from the code.

Usage: python docs/figures/reference_pages.py [api] [commands]
"""

import sys
from collections.abc import Callable
from pathlib import Path

from reference_api import api
from reference_commands import commands

import sightline as sl

LOOKUP = Path(__file__).resolve().parents[1] / "lookup"
PAGES: dict[str, Callable[[], str]] = {"api": api, "commands": commands}

if __name__ == "__main__":
    LOOKUP.mkdir(exist_ok=True)
    for page in sys.argv[1:] or PAGES:
        (LOOKUP / f"{page}.md").write_text(PAGES[page](), encoding="utf-8")
        sys.stdout.write(f"docs/lookup/{page}.md of sightline {sl.__version__}\n")
