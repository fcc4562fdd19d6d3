import errno
import os

import pytest
from matplotlib.figure import Figure

from sightline.cli.outputs import save_figure
from tests.command import run


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.ENOSPC, "no space left on device"), (errno.EACCES, "permission denied")],
)
def test_what_the_system_refuses(tmp_path, monkeypatch, number, reason):
    def refuse(*args):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Figure, "savefig", refuse)
    path = tmp_path / "a.png"
    with pytest.raises(OSError, match=rf"can't write '.*a.png': {reason}; choose another --out"):
        save_figure(Figure(), path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["page.html", "page.png"])
def test_an_evaluation_writes_a_folder_and_refuses_the_name_of_a_file(tmp_path, name):
    code, _, err = run("evaluate", tmp_path, "--out", tmp_path / name)
    assert code == 2
    assert err == (
        f"--out must be a folder, for results.html, scores.json and predictions.json, got "
        f"'{tmp_path / name}'; try '{tmp_path / 'page'}'\n"
    )
    assert not (tmp_path / name).exists()
