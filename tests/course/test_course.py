"""The course's checks: the solutions pass, what is handed out does not, and common slips get their hints."""

import importlib.util
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from course.checks import agree

ROOT = Path(__file__).parents[2]
COURSE = ROOT / "course"
FOLDERS = sorted(COURSE.glob("[0-9]*"))
CHECKS = [
    (path.parent.name, path.name, name)
    for path in sorted(COURSE.glob("[0-9]*/test_*.py"))
    for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
]

pytestmark = pytest.mark.plain


def load(path):
    spec = importlib.util.spec_from_file_location(f"course_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _no_trace():
    with torch.random.fork_rng(devices=[]):
        yield


def test_there_is_one_for_each_chapter():
    chapters = sorted(path.stem for path in (ROOT / "docs/learn").glob("[0-9]*.md"))
    assert [folder.name for folder in FOLDERS] == chapters


@pytest.mark.parametrize(("folder", "file", "name"), CHECKS)
def test_a_solution_passes_and_what_is_handed_out_does_not(folder, file, name):
    check = getattr(load(COURSE / folder / file), name)
    check(load(COURSE / "solutions" / f"{folder}.py"))
    with pytest.raises(NotImplementedError):
        check(load(COURSE / folder / "exercise.py"))


def test_a_wrong_answer_gets_its_hint_by_the_command_that_a_student_types(tmp_path):
    folder = tmp_path / "course" / "03_scaled_dot_product"
    shutil.copytree(COURSE, folder.parent)
    solution = (COURSE / "solutions" / f"{folder.name}.py").read_text()
    (folder / "exercise.py").write_text(solution.replace(" / Q.shape[-1] ** 0.5", ""))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 1, done.stdout + done.stderr
    assert "hint: the scores are not divided by the root of d_k" in done.stdout


@pytest.mark.parametrize(
    ("answer", "expected", "said"),
    [
        (
            torch.ones(2, 2).tril(),
            torch.ones(2, 2).tril() > 0,
            "expected True and False",
        ),
        (torch.zeros(3, 2), torch.zeros(2, 3), "expected the shape (2, 3), got (3, 2)"),
        (torch.tensor([0.0, math.nan]), torch.zeros(2), "it has NaN"),
        (torch.ones(5, 5, 5), torch.zeros(5, 5, 5), "expected a tensor (5, 5, 5) that begins with"),
        (None, torch.zeros(2), "None: is there a return?"),
        (torch.zeros(3), (torch.zeros(2), 1.0), "2 results are expected, separated by commas; got tensor"),
        ((torch.zeros(2), 2.0), (torch.zeros(2), 1.0), "expected 1.0, got 2.0"),
        ([1, 2, 3], [1, 2], "expected [1, 2], got [1, 2, 3]"),
        ("0.5", 0.5, "expected 0.5, got '0.5'"),
        (0.7, 0.5, "hint: seven tenths are too many"),
    ],
)
def test_a_difference_is_said(answer, expected, said):
    with pytest.raises(AssertionError) as caught:
        agree(answer, expected, {"seven tenths are too many": 0.7, "nor is it eight": 0.8})
    assert said in str(caught.value)
    assert "eight" not in str(caught.value)
    agree(expected, expected)


def test_a_slip_with_the_right_answer_is_a_fault_of_the_check():
    with pytest.raises(AssertionError, match="the check is wrong"):
        agree(0.5, 0.5, {"a hint": 0.5})
