import io
import json
import zipfile
import zlib

import matplotlib.image
import numpy as np
import pytest
from PIL import Image

from sightline.cli import main


def run(*args):
    try:
        main(["data", "check", *map(str, args)])
    except SystemExit as ended:
        return ended.code or 0
    return 0


def picture(seed):
    file = io.BytesIO()
    colours = np.random.default_rng(seed).integers(0, 256, (13, 11, 3), dtype=np.uint8)
    Image.fromarray(colours).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [
        f"{i}.png,a dog [{i}],{split}" for i, split in enumerate(["train", "train", "val", "test", "test"])
    ]
    (folder / "captions.csv").write_text("\n".join(["image,caption,split", *rows]))
    for i in range(4):
        (folder / f"{i}.png").write_bytes(picture(i if i < 3 else 0))
    (folder / "1.png").write_text("no picture")
    return folder


def test_the_report(data, capsys):
    before = sorted(data.iterdir())
    assert run(data) == 0
    out = capsys.readouterr().out
    assert f"{data}: table captions; splits stated" in out
    for row in (
        "split  images  captions  distinct words  not in train  longest",
        "train       1         1               3          0.0%        3",
        "broken (1): images that can't be read; they are skipped",
    ):
        assert row in out
    for name in ("'1.png' is not an image that can be read; it is text", "'4.png' is not in"):
        assert name in out
    assert "'0.png' in train and '3.png' in test" in out
    assert sorted(data.iterdir()) == before


def test_json_is_one_object(data, capsys, tmp_path):
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as file:
        for path in data.iterdir():
            file.write(path, path.name)
    assert run(tmp_path / "data.zip", "--json", "--longest", 2, "--out", tmp_path / "sheet.png") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"missing": 1, "broken": 1, "too long": 3, "duplicate": 1}
    assert found["splits"]["test"]["images"] == 1


def test_many_problems_are_not_all_listed(data, capsys):
    with (data / "captions.csv").open("a") as file:
        file.writelines(f"\nx{i}.png,a dog,train" for i in range(17))
    assert run(data) == 0
    out = capsys.readouterr().out
    assert "missing (18): images that are named and not there" in out
    assert out.count(" is not in ") == 5
    assert "and 13 more; --json lists all" in out


def test_a_clean_set(data, capsys):
    (data / "captions.csv").write_text("image,caption\n0.png,a dog\n")
    assert run(data, "--seed", 7) == 0
    out = capsys.readouterr().out
    assert "no problem found" in out
    assert "by a hash of seed 7 and the name" in out


def test_the_embedded_set(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("sightline.data.readers.SCENE_COUNTS", (13, 5, 3))
    assert run("scenes", "--json", "--out", tmp_path / "sheet.png") == 0
    found = json.loads(capsys.readouterr().out)
    assert [split["images"] for split in found["splits"].values()] == [13, 5, 3]
    assert found["problems"] == []


def test_the_contact_sheet(data, tmp_path, capsys):
    out = tmp_path / "new" / "sheet.png"
    assert run(data, "--out", out) == 0
    assert capsys.readouterr().err == f"{out}\n"
    assert matplotlib.image.imread(out).shape[1] > 500
    assert [path.name for path in out.parent.iterdir()] == ["sheet.png"]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda data: [path.unlink() for path in data.iterdir()], "is empty"),
        (
            lambda data: (data / "dataset.json").write_text('{"images": []}'),
            "'dataset.json' holds ['images']",
        ),
        (
            lambda data: (data / "captions.csv").write_bytes(b"image,caption\n0.png,caf\xe9\n"),
            "has the byte 0xe9 on line 2",
        ),
        (
            lambda data: [path.write_text("text") for path in data.glob("*.png")],
            "not one of the 4 images of",
        ),
    ],
)
def test_data_that_is_none(data, capsys, prepare, words):
    prepare(data)
    assert run(data, "--json") == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.bad_input
def test_arguments_that_are_none(data, tmp_path, capsys):
    for args, words in (
        ([tmp_path / "nowhere"], "there is no folder and no zip"),
        ([data, "--out", data / "sheet.png"], "--out must lie outside the data"),
        ([data, "--out", tmp_path / "sheet.doc"], "must end in one of"),
        ([data, "--longest", 0], "at least 1 word, got 0"),
    ):
        assert run(*args) == 2
        captured = capsys.readouterr()
        assert words in captured.err
        assert captured.err.count("\n") == 1
    assert not (data / "sheet.png").exists()


def test_classes_and_their_sheet(tmp_path, capsys):
    for i in range(7):
        for name in ("cat", "dog"):
            path = tmp_path / "set" / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture(10 * i + (name == "dog")))
    (tmp_path / "set" / "dog" / "broken.png").write_text("no picture")
    assert run(tmp_path / "set", "--out", tmp_path / "sheet.png") == 0
    out = capsys.readouterr().out
    assert (
        f"{tmp_path / 'set'}: 2 classes, class folders; splits 0.1 of each class val and 0.1 of each" in out
    )
    assert "train      10        2  5 (cat)  5 (cat)" in out
    assert "broken (1): images that can't be read" in out
    assert (tmp_path / "sheet.png").stat().st_size > 5000
    assert run("digits", "--json") == 0
    assert json.loads(capsys.readouterr().out)["splits"]["test"]["images"] == 360


def test_a_kind_may_be_said(data, tmp_path, capsys):
    (data / "labels.csv").write_text("file,label\n0.png,a\n2.png,b\n3.png,a\n")
    assert run(data, "--task", "classify", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"too few": 2}
    assert found["layout"] == "labels.csv"
    assert run(data, "--json") == 0
    assert json.loads(capsys.readouterr().out)["form"] == "table"


@pytest.mark.bad_input
def test_pairs_have_no_contact_sheet(tmp_path, capsys):
    (tmp_path / "all.csv").write_text("en,de\na,b\nc,d\ne,f\n")
    assert run(tmp_path / "all.csv", "--out", tmp_path / "sheet.png") == 2
    assert "a contact sheet is of images" in capsys.readouterr().err
    assert not (tmp_path / "sheet.png").exists()


def test_a_zip_member_is_unpacked_no_further_than_its_directory_says(tmp_path, monkeypatch):
    path, size = tmp_path / "bomb.zip", 64 << 20
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("captions.csv", "image,caption\na.png,a cat\n")
        file.writestr("a.png", bytes(size))
    content = bytearray(path.read_bytes())
    entry = content.rfind(b"PK\x01\x02")  # the member's line of the directory: its size is at byte 24
    content[entry + 24 : entry + 28] = (100).to_bytes(4, "little")
    path.write_bytes(content)
    largest, real = [], zlib.decompressobj

    class Counted:
        def __init__(self, *args):
            self._own = real(*args)

        def __getattr__(self, name):
            return getattr(self._own, name)

        def decompress(self, *args):
            found = self._own.decompress(*args)
            largest.append(len(found))
            return found

    monkeypatch.setattr(zlib, "decompressobj", Counted)
    assert run(path) == 2
    assert 0 < max(largest) < size // 1000


@pytest.mark.parametrize("name", ["bomb.zip", "bomb.npz"])
def test_bzip2_is_refused_before_anything_is_unpacked(tmp_path, name, capsys, monkeypatch):
    with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_BZIP2) as file:
        file.writestr("captions.csv", "image,caption\na.png,a cat\n")
    monkeypatch.setattr(zipfile.ZipExtFile, "read", lambda *_: pytest.fail("it was unpacked"))
    assert run(tmp_path / name) == 2
    assert "may not be packed by bzip2, got 'captions.csv' in" in capsys.readouterr().err
