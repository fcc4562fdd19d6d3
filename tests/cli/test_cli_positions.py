import matplotlib.image
import pytest

from sightline.cli import main


def run(*args):
    try:
        main(["positions", *map(str, args)])
    except SystemExit as ended:
        return ended.code or 0
    return 0


def test_it_draws_the_heatmap(tmp_path, capsys):
    out = tmp_path / "new" / "heatmap.png"
    assert run("--length", 11, "--d-model", 7, "--out", out) == 0
    assert capsys.readouterr().err == f"{out}\n"
    assert matplotlib.image.imread(out).shape[:2] == (750, 1200)
    assert [path.name for path in out.parent.iterdir()] == ["heatmap.png"]


def test_length_width_and_base_matter(tmp_path):
    args = {"plain": [], "length": ["--length", 31], "width": ["--d-model", 13], "base": ["--base", 50]}
    pictures = set()
    for name, extra in args.items():
        assert run(*extra, "--out", tmp_path / f"{name}.png") == 0
        pictures.add((tmp_path / f"{name}.png").read_bytes())
    assert len(pictures) == 4


@pytest.mark.parametrize("suffix", ["jpg", "pdf", "PNG", "svg", "webp"])
def test_every_known_format(tmp_path, suffix):
    out = tmp_path / f"heatmap.{suffix}"
    assert run("--length", 5, "--d-model", 3, "--out", out) == 0
    assert out.stat().st_size > 1000


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--length", 0], "--length must be at least 1, got 0"),
        (["--length", -7], "--length must be at least 1, got -7"),
        (["--d-model", -3], "--d-model must be at least 1, got -3"),
        (["--base", 0], "base must be a positive number, got 0.0"),
        (["--base", "nan"], "base must be a finite number, got nan"),
        (["--length", 10**9], "--length 1000000000 times --d-model 32"),
    ],
)
def test_bad_numbers(tmp_path, capsys, args, words):
    out = tmp_path / "heatmap.png"
    assert run(*args, "--out", out) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("heatmap.gif", "one of .jpg, .pdf, .png, .svg, .webp, got"),
        ("heatmap", "one of .jpg, .pdf, .png, .svg, .webp, got"),
        ("file/heatmap.png", "is a file, not a folder; choose another --out"),
        ("folder.png", "it is a folder; choose another --out"),
    ],
)
def test_bad_places(tmp_path, capsys, name, words):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder.png").mkdir()
    assert run("--out", tmp_path / name) == 2
    err = capsys.readouterr().err
    assert words in err
    assert str(tmp_path / name) in err
    assert err.count("\n") == 1
    assert (tmp_path / "file").read_text() == "kept"
    assert len(list(tmp_path.iterdir())) == 2
