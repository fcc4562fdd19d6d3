import subprocess
import sys

WITHOUT = """
import sys
sys.modules["matplotlib"] = None
import sightline.positions
try:
    import sightline.show
except ImportError as problem:
    print(problem)
"""


def test_without_matplotlib_a_sentence():
    python = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(python, capture_output=True, text=True, check=True)  # noqa: S603
    assert "pip install 'sightline[show]'" in done.stdout
    assert done.stdout.count("\n") == 1


DRAWING = """
import sys, torch
from sightline import show
show.weights(torch.eye(3), title="a").savefig(sys.argv[1])
print("matplotlib.pyplot" in sys.modules)
"""


def test_drawing_never_imports_pyplot(tmp_path):
    python = [sys.executable, "-c", DRAWING, str(tmp_path / "a.png")]
    done = subprocess.run(python, capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == "False\n"
