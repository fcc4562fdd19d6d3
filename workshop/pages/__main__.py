"""Write the pages of docs/lookup that come from the code, and the notebooks that come from pages.

Usage: python -m workshop.pages [api] [commands] [models_watched] [textbook] [notebooks]
"""

import sys
from collections.abc import Callable

from workshop import DOCS
from workshop.pages.models_watched import models_watched
from workshop.pages.notebooks import NOTEBOOKS, text_of
from workshop.pages.reference_api import api
from workshop.pages.reference_commands import commands
from workshop.pages.textbook_table import textbook

PAGES: dict[str, Callable[[], str]] = {
    "api": api,
    "commands": commands,
    "models_watched": models_watched,
    "textbook": textbook,
}


def main() -> None:
    """Write what was asked for, all of it by default."""
    asked = sys.argv[1:] or [*PAGES, "notebooks"]
    written = {f"lookup/{name}.md": PAGES[name]() for name in asked if name != "notebooks"}
    if "notebooks" in asked:
        written |= {f"notebooks/{name}.ipynb": text_of(name) for name in NOTEBOOKS}
    for place, text in written.items():
        (DOCS / place).write_text(text, encoding="utf-8")
        sys.stdout.write(f"docs/{place}\n")


if __name__ == "__main__":
    main()
