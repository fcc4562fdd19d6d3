import os

import pytest
from matplotlib.figure import Figure

from sightline.cli import files


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="midway"), files.replacing(path) as beside:  # noqa: PT012
        beside.write_text("half of the n")
        raise RuntimeError("midway")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_success_takes_its_place(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    with files.replacing(path) as beside:
        beside.write_text("new")
        assert path.read_text() == "old"
        assert beside.parent == path.parent
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.bad_input
def test_what_the_system_refuses(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    path = tmp_path / "a.png"
    with pytest.raises(
        OSError, match=r"can't write '.*a.png': no space left on device; choose another --out"
    ):
        files.save(Figure(), path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.bad_input
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_locked(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="permission denied; choose another --out"):
        files.save(Figure(), tmp_path / "a.png")
