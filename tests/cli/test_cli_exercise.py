"""sightline exercise: the list, the file, the grade, and what is refused."""

import inspect

import pytest

from sightline.cli import main
from sightline.exercises import EXERCISES, file_of

pytestmark = pytest.mark.bad_input


def said(capsys, *args):
    with pytest.raises(SystemExit) as ended:
        main(["exercise", *args])
    out, err = capsys.readouterr()
    return ended.value.code or 0, out, err


def test_the_list(capsys):
    code, out, _ = said(capsys)
    assert code == 0
    assert out.splitlines()[2] == "  3  scaled dot-product attention"
    assert len(out.splitlines()) == len(EXERCISES)


def test_a_file_is_handed_out_once(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said(capsys, "3")[0] == 0
    assert (tmp_path / "exercise_3.py").read_text() == file_of(3)
    (tmp_path / "exercise_3.py").write_text("my work")
    code, _, err = said(capsys, "3")
    assert code == 2
    assert err.startswith("'exercise_3.py' is there already")
    assert (tmp_path / "exercise_3.py").read_text() == "my work"
    assert said(capsys, "3", "--out", "other.py")[0] == 0
    assert "sightline exercise check 3 other.py" in (tmp_path / "other.py").read_text().splitlines()[0]


def test_the_grade_is_the_exit_code(capsys, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(inspect.getsource(EXERCISES[3].key) + "\nprint('\\x1b[31mhello')\n")
    code, out, err = said(capsys, "check", "3", str(path))
    assert code == 0
    assert out == "exercise 3: all 3 checks pass; the next is sightline exercise 4\n"
    assert "hello" in err
    assert "\x1b" not in err
    path.write_text(path.read_text().replace(" / Q.shape[-1] ** 0.5", ""))
    code, out, _ = said(capsys, "check", "3", str(path))
    assert code == 1
    assert out.splitlines()[0] == "exercise 3: 0 of 3 checks pass, then"
    assert "(the homework's input): output: expected -0.1724 at [1, 2, 3], got 0.1349" in out.splitlines()[1]
    assert out.splitlines()[2] == "  hint: the scores are not divided by the root of d_k"


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["99"], "exercises have the numbers 1 to 14, got '99'"),
        (["three"], "got 'three'"),
        (["3", "mine.py"], "got '3 mine.py'"),
        (["check", "3"], "an exercise is asked for as"),
        (["check", "3", "gone.py"], "gone.py"),
        (["check", "3", "gone.py", "--seconds", "0"], "--seconds must be above 0"),
    ],
)
def test_what_is_refused(capsys, args, sentence):
    code, _, err = said(capsys, *args)
    assert code == 2
    assert sentence in err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1


def test_a_file_that_is_no_text_is_refused(capsys, tmp_path):
    (tmp_path / "mine.py").write_bytes(b"\xff\xfe\x00\x01")
    code, _, err = said(capsys, "check", "1", str(tmp_path / "mine.py"))
    assert code == 2
    assert "is a text file in UTF-8" in err
