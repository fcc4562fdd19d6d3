"""Tools of those who work on Sightline: nothing here is installed, and `make test` needs none of it."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PICTURES = DOCS / "pictures"
