"""The scripts of docs/figures import one another by name, as Python finds them when one is run."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "docs" / "figures"))
