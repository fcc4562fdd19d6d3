"""Every script that draws is run by `python -m workshop.figures`."""

import re

from workshop import ROOT
from workshop.figures.__main__ import QUICK, SLOW

FIGURES = ROOT / "workshop/figures"
DRAWS = re.compile(r"\.(savefig|screenshot)\(")


def test_every_script_that_draws_is_run_and_every_one_that_is_run_is_there():
    names = {line.split()[0] for line in f"{QUICK}{SLOW}".splitlines() if line} - {"sightline"}
    draw = {path.stem for path in FIGURES.glob("*.py") if DRAWS.search(path.read_text())}
    assert len(draw) > 20
    assert draw <= names <= {path.stem for path in FIGURES.glob("*.py")}
