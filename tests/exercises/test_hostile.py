"""Files that misbehave: each is answered by a sentence, none passes, none touches this process."""

import sys
import time
from pathlib import Path

import pytest

from sightline.exercises import EXERCISES, grade
from sightline.exercises.child import decoded, encoded
from sightline.exercises.exercise import Probe
from sightline.exercises.sandbox import run_file

SEVERAL = """
import math, sys, torch
print("hello", file=sys.stderr)

def exits(): sys.exit(0)
def raises(): raise KeyboardInterrupt
def huge(): return torch.zeros(1 << 40)
def grows():
    kept = []
    while True:
        kept.append(bytearray(1 << 26))
def deep(): return deep()
def odd(): return object()
def endless():
    answer = []
    answer.append(answer)
    return answer
def big(): return torch.zeros(1000, 1000)
def number(): return 10 ** 5000
def environment():
    import os
    return " ".join(os.environ.values())
def folder():
    import os
    return os.getcwd()
def fills():
    with open("file", "wb") as file:
        for _ in range(100):
            file.write(bytes(1 << 20))
def peeks():
    from sightline.exercises.keys import e01_soft_dictionary
    return e01_soft_dictionary.softmax([1.0])
def fine(x): return x + 1
"""

# Writes to every channel that it finds: lines of the grader's own kind, and all that it could wish.
FORGED = """
import os
line = b'{"answer": {"list": [0.25, 0.25, 0.25, 0.25], "pair": false}}\\n'
for fd in range(1, 10):
    try:
        os.write(fd, b'{"passed": true}\\n' + 50 * line)
    except OSError:
        pass
"""


def graded(tmp_path, source, number=1, seconds=20.0):
    path = tmp_path / "mine.py"
    path.write_text(source)
    return grade(EXERCISES[number], path, seconds=seconds)


def test_whatever_a_function_does_the_next_is_asked(monkeypatch):
    monkeypatch.setenv("A_SECRET", "sesame")
    names = [
        *(
            "exits",
            "raises",
            "huge",
            "grows",
            "deep",
            "odd",
            "endless",
            "big",
            "number",
            "environment",
            "folder",
        ),
        *("fills", "peeks", "missing"),
    ]
    probes = [*(Probe(name=name) for name in names), Probe(name="fine", args=(2.0,))]
    outcome = run_file(SEVERAL, "several.py", probes, seconds=120)
    found = dict(zip([*names, "fine"], outcome.lines, strict=True))
    assert found["exits"]["error"] == "SystemExit"
    assert found["raises"]["error"] == "KeyboardInterrupt"
    assert "allocate" in found["huge"]["message"]
    assert found["huge"]["line"] == 7
    assert found["grows"]["error"] == "MemoryError"
    assert found["deep"]["error"] == "RecursionError"
    assert found["odd"] == {"answer": {"other": "object"}}
    assert "other" in str(found["endless"])
    assert found["big"] == {"answer": {"other": "tensor of shape (1000, 1000)"}}
    assert found["number"] == {"answer": {"other": "int"}}
    assert "sesame" not in found["environment"]["answer"]
    assert found["folder"]["answer"] != str(Path.cwd())
    assert not Path(found["folder"]["answer"]).exists()
    assert found["fills"]["error"] == "OSError"
    assert found["peeks"]["error"] == "ModuleNotFoundError"
    assert found["missing"] == {"missing": "missing"}
    assert found["fine"] == {"answer": 3.0}
    assert outcome.printed.startswith("hello")


@pytest.mark.parametrize(
    ("source", "problem", "hint"),
    [
        ("def softmax(scores):\n    while True: pass\n", "no answer after 1 seconds", "loop that never ends"),
        ("import os\nprint('all checks pass')\nos._exit(0)\n", "ended its process", "os._exit"),
        ("def softmax(scores)\n    return scores\n", "expected ':', at line 1: def softmax(scores)", ""),
        ("print('x' * 1000)\n" * 3000 + "def softmax(s): return s\n", "expected [0.25,", ""),
        (
            FORGED,
            "softmax([0.0, 0.0, 0.0, 0.0])",
            "",
        ),
    ],
)
def test_a_file_that_misbehaves_gets_a_sentence(tmp_path, source, problem, hint):
    verdict = graded(tmp_path, source, seconds=1 if "while" in source else 60)
    assert not verdict.is_passed
    assert problem in verdict.problem
    assert hint in verdict.hint
    assert len(verdict.printed) <= 1 << 14


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_what_a_file_started_ends_with_it():
    source = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "def softmax(scores): return child.pid\n"
    )
    outcome = run_file(source, "mine.py", [Probe(name="softmax", args=(1,))], seconds=60)
    pid = outcome.lines[0]["answer"]
    for _ in range(1000):  # the system may take a moment
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.001)
    else:
        pytest.fail("what the file started lives on")


def test_answers_that_are_not_answers_are_refused():
    good = encoded((0.5, [1, None], "word"))
    assert decoded(good) == (0.5, [1, None], "word")
    for bad in (
        [1],
        {"tensor": "float32", "shape": [2], "data": ""},
        {"tensor": "float32", "shape": [2], "data": "AAAA"},
        {"tensor": "float32", "shape": [1 << 40], "data": "AAAA"},
        {"tensor": "object", "shape": [1], "data": "AAAA"},
        {"tensor": "float32", "shape": "ab", "data": "AAAA"},
        {"tensor": "float32", "shape": [1], "data": "not base64"},
        {"list": 3},
        10**400,
    ):
        with pytest.raises((ValueError, TypeError, RuntimeError, KeyError, AttributeError)):
            decoded(bad)
