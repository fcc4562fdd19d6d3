import subprocess
import sys

import pytest

import sightline
from tests.command import run


def test_version():
    assert run("--version") == (0, f"sightline {sightline.__version__}\n", "")


def test_help_names_the_commands():
    code, out, _ = run("--help")
    assert code == 0
    assert all(name in out for name in ("positions", "demo", "look"))


def test_help_does_not_import_torch():
    script = "import sys; from sightline.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    script += "sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode == 0  # noqa: S603


def test_as_a_module():
    python = [sys.executable, "-W", "error", "-m", "sightline", "--version"]
    done = subprocess.run(python, capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == f"sightline {sightline.__version__}\n"


@pytest.mark.parametrize("missing", ["typer", "rich", "matplotlib"])
def test_without_an_extra_a_sentence(missing):
    script = f"import sys; sys.modules[{missing!r}] = None; from sightline.cli import main; main(['demo'])"
    python = [sys.executable, "-c", script]
    done = subprocess.run(python, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 2
    assert done.stderr == (
        f"the command line needs {missing}, which is not installed; pip install 'sightline[cli]'\n"
    )


@pytest.mark.parametrize(
    ("missing", "words"),
    [("tokenizers", "vocabularies need tokenizers"), ("accelerate", "training needs accelerate")],
)
def test_without_what_trains_a_sentence(tmp_path, monkeypatch, missing, words):
    monkeypatch.setitem(sys.modules, missing, None)
    code, _, err = run(
        "train", "caption", "--data", "scenes", "--out", str(tmp_path / "run"), "--n-train", "3"
    )
    assert code == 2
    assert err.splitlines()[-1] == f"{words}, which is not installed; pip install 'sightline[train]'"


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "args", [["dmeo"], ["positions", "--length", "many"], ["positions", "--lenght", "3"]]
)
def test_usage_errors(args):
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert "Usage" in err
