"""A real Jupyter Lab and a real marimo open a notebook with the explorer in it.

    python -m workshop.release.lab

Both are too heavy for the environment of the tests: theirs is in build/lab, over it, and made the first time.
"""

import os
import subprocess
import sys
import sysconfig

from workshop import ROOT

PLACE = ROOT / "build" / "lab"
PACKAGES = ["jupyterlab>=4.4", "ipykernel>=7", "marimo>=0.20", "anywidget>=0.9"]


def main() -> int:
    """Make the environment where there is none, and run the tests in it."""
    python = PLACE / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PLACE)], check=True)
        install = ["-m", "pip", "install", "--quiet", "--no-compile", *PACKAGES]
        subprocess.run([str(python), *install], check=True)
        (site,) = PLACE.glob("lib/python3*/site-packages")
        own = sysconfig.get_path("purelib")
        (site / "over.pth").write_text(f"import site; site.addsitedir({own!r})\n")
    tests = [str(python), "-m", "pytest", "workshop/tests/test_lab.py"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(tests, cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
