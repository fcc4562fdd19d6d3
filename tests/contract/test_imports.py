"""What is imported: knots and imports inside functions, which may only shrink, and what first steps load."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.imports import imports, knots
from tests.golden.written import is_writing, no_more_than_written, written

LOADED = Path(__file__).parent / "loaded.py"
TRAIN = """train caption --data scenes --n-train 3 --n-val 2 --n-test 2 --image-size 8 --patch 4 --stem 0
    --d-model 4 --n-heads 1 --n-layers 1 --d-ff 4 --max-length 5 --steps 1 --no-tensorboard --device cpu"""


@pytest.fixture(scope="module")
def edges():
    return list(imports())


def test_no_module_comes_into_a_knot(edges):
    """Modules that import each other, inside functions too, are those that are written down, or fewer."""
    found = knots({(x.importer, x.imported) for x in edges})
    known = written("knots.json", found)
    strange = [knot for knot in found if not any(set(knot) <= set(other) for other in known)]
    assert strange == [], "tests/golden/knots.json may only shrink"


def test_no_import_inside_a_function_is_new(edges):
    lazy = {f"{x.importer} -> {x.imported}" for x in edges if x.is_lazy}
    assert len(edges) > 1000
    no_more_than_written("lazy_imports.json", lazy)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"a": "from sightline import b", "b": "import sightline.a"}, [["sightline.a", "sightline.b"]]),
        ({"a": "from . import b", "b": "def f():\n    from .a import x"}, [["sightline.a", "sightline.b"]]),
        ({"a": "if TYPE_CHECKING:\n    from sightline import b", "b": "import sightline.a"}, []),
        ({"a": "from sightline.b import c", "b": "from sightline.c import d", "c": ""}, []),
    ],
)
def test_a_knot_is_found(tmp_path, source, expected):
    package = tmp_path / "sightline"
    package.mkdir()
    for name, text in {"__init__": "", **source}.items():
        (package / f"{name}.py").write_text(text)
    assert knots({(x.importer, x.imported) for x in imports(package)}) == expected


def budget(file):
    """Check what a process has loaded: no other packages, and no more modules, than are written down."""
    found = json.loads(Path(file).read_text(encoding="utf-8"))
    known = written("loaded.json")
    if is_writing():
        known = written("loaded.json", known | found)
    for step, now in found.items():
        assert set(now["packages"]) <= set(known[step]["packages"]), step
        assert now["modules"] <= known[step]["modules"], step


def process(file, *words):
    """Start a process that writes what it loads to a file."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(LOADED), str(file), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)  # noqa: S603


def take(file, *words):
    """Wait for such a process, and check what it has loaded."""
    with process(file, *words) as child:
        _, err = child.communicate()
    assert child.returncode == 0, err.decode()
    budget(file)


def test_first_steps_load_no_more_than_is_written_down(tmp_path):
    take(tmp_path / "found.json", "import sightline", "sl.look", "sl.watch")


def test_a_training_loads_no_more_than_is_written_down(tmp_path):
    take(tmp_path / "found.json", "--", *TRAIN.split(), "--out", tmp_path / "run")
