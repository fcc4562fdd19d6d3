"""Commands that are gone answer with what to use instead."""

import pytest

from sightline.cli import main

pytestmark = pytest.mark.bad_input


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["bench", "look", "--quick"], "python -m benchmarks look"),
        (["check", "runs/demo"], "opening a run"),
        (["exercise", "check", "3", "mine.py"], "pytest course/NN_name"),
    ],
)
def test_a_command_that_is_gone(words, instead, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    _, err = capsys.readouterr()
    assert ended.value.code == 2
    assert err.startswith(f"`sightline {words[0]}` was removed: ")
    assert instead in err
    assert err.count("\n") == 1
