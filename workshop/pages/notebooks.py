"""Make the notebooks out of how-to pages: their text, and their code without prompts and expected output."""

import json
import re
from typing import Any

from workshop import DOCS

NOTEBOOKS = {
    "mechanism": ("do/mask.md", "do/score.md", "do/statistic.md"),
    "watch_your_own_model": ("do/watch_your_model.md", "do/loss.md"),
    "caption_your_own_folder": ("do/caption_your_folder.md",),
    "explorer_in_a_cell": ("do/explorer_in_a_cell.md",),
}
FIRST = "import torch\nfrom torch import nn\n\nimport sightline as sl\n\ntorch.manual_seed(0)"
FENCE = re.compile(r"^```python\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)


def code_of(block: str) -> str:
    """The code of a block: of a session what was typed, else the block itself."""
    if ">>> " not in block:
        return block.rstrip()
    typed = [line for line in block.splitlines() if line.startswith((">>> ", "... ", "..."))]
    return "\n".join(line[4:] for line in typed)


def cells_of(page: str) -> list[tuple[str, str]]:
    """The cells of a page: ("markdown" or "code", source)."""
    cells, at = [], 0
    for match in FENCE.finditer(page):
        cells += [("markdown", page[at : match.start()]), ("code", code_of(match[1]))]
        at = match.end()
    cells.append(("markdown", page[at:]))
    return [(kind, source.strip()) for kind, source in cells if source.strip()]


def notebook(name: str) -> dict[str, Any]:
    """A notebook in nbformat 4.5, the same every time."""
    cells = [("code", FIRST)]
    for page in NOTEBOOKS[name]:
        cells += cells_of((DOCS / page).read_text(encoding="utf-8"))
    made = []
    for number, (kind, source) in enumerate(cells):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        made.append(cell | {"source": source.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": made, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def text_of(name: str) -> str:
    """A notebook as its file has it."""
    return json.dumps(notebook(name), indent=1, ensure_ascii=False) + "\n"
