"""Which kind of data lies at a place, and that each kind is checked by the same call."""

import json

import numpy as np
import pytest

from sightline.data.check import MEANINGS, check
from sightline.data.dataset import Dataset
from sightline.data.readers import READERS, kind_of, open_dataset
from tests.data.caption_sets import LAYOUTS, as_folder, as_zip
from tests.data.class_sets import LAYOUTS as CLASS_LAYOUTS
from tests.data.image_table_sets import LAYOUTS as TABLE_LAYOUTS
from tests.data.pair_formats import FORMATS, PAIRS
from tests.data.picture_files import png

SETS = {f"caption {name}": make for name, make in (LAYOUTS | TABLE_LAYOUTS).items()}
SETS |= {f"classify {name}": make for name, make in CLASS_LAYOUTS.items() if name != "metadata"}
SETS |= {
    f"translate {name}": lambda ending=ending, write=write: {
        f"{split}.{ending}": write(PAIRS) for split in ("train", "val")
    }
    for name, (ending, write, _) in FORMATS.items()
}
SETS["translate alone"] = lambda: {"deu.txt": FORMATS["tatoeba"][1](PAIRS), "_about.txt": b"a\tb"}
SETS["translate parallel"] = lambda: {"all.en": b"a\n", "all.de": b"b\n"}
SETS["classify splits"] = lambda: {f"{split}/{c}/1.png": png(1) for split in ("train", "val") for c in "ab"}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", SETS)
def test_a_kind_is_found_by_looking(tmp_path, name, packed):
    files = SETS[name]()
    path = as_zip(files, tmp_path / "set.zip") if packed else as_folder(files, tmp_path / "set")
    assert kind_of(path) == name.partition(" ")[0]


def test_what_could_be_two_kinds(tmp_path):
    both = b'{"file_name": "a.png", "text": "a dog", "label": "dog"}'
    assert kind_of(as_folder({"metadata.jsonl": both}, tmp_path / "both")) == "caption"
    nameless = as_folder({"labels.csv": b"a.png,cat\nb.png,dog\n", "a.png": png(1)}, tmp_path / "nameless")
    assert kind_of(nameless) == "classify"
    with pytest.raises(
        ValueError, match=r"'labels\.csv' has a\.png, cat; name its columns in the first line"
    ):
        open_dataset(nameless)


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_of_pairs_alone(tmp_path, form):
    ending, write, _ = FORMATS[form]
    (tmp_path / f"x.{ending}").write_bytes(write(PAIRS))
    assert kind_of(tmp_path / f"x.{ending}") == "translate"


def test_a_table_of_images_alone(tmp_path):
    for name, kind in (
        ("captions.csv", "caption"),
        ("labels.csv", "classify"),
        ("metadata.jsonl", "caption"),
    ):
        files = {"labels.csv": b"file,label\na.png,cat\n", "captions.csv": b"image,caption\na.png,a dog\n"}
        files["metadata.jsonl"] = b'{"file_name": "a.png", "text": "a dog"}'
        as_folder({name: files[name]}, tmp_path)
        assert kind_of(tmp_path / name) == kind
    np.savez(tmp_path / "a.npz", images=np.zeros((1, 2, 2)))
    assert kind_of(tmp_path / "a.npz") == "classify"
    assert [kind_of(name) for name in ("scenes", "dates", "digits", "nowhere")] == [*READERS, "caption"]


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("classify folders", {"images", "classes", "fewest", "most"}),
        ("caption coco", {"images", "captions", "words", "unknown", "longest"}),
        ("translate csv", {"pairs", "words", "longest", "ratio", "unknown"}),
    ],
)
def test_every_kind_is_checked_alike(tmp_path, name, keys):
    dataset = open_dataset(as_folder(SETS[name](), tmp_path))
    assert isinstance(dataset, Dataset)
    report = check(dataset)
    found = json.loads(json.dumps(report.as_json()))
    assert found["source"] == str(tmp_path)
    assert {key for split in found["splits"].values() for key in split} == keys
    assert all(cell(numbers) for numbers in report.splits.values() for cell in report.columns.values())
    assert set(report.by_kind()) <= set(MEANINGS)


def test_classes_in_numbers(tmp_path):
    files = {f"train/cat/{i}.png": png(i) for i in range(33)} | {
        f"train/dog/{i}.png": png(50 + i) for i in range(3)
    }
    files |= {
        "val/dog/x.png": png(50),
        "val/cat/y.png": png(99),
        "train/dog/again.png": png(51),
        "train/dog/b.png": b"no",
    }
    report = check(open_dataset(as_folder(files, tmp_path)))
    found = report.as_json()
    assert found["classes"] == ["cat", "dog"]
    assert found["counts"] == {"broken": 1, "duplicate": 1}
    assert found["repeated"] == 1
    assert found["splits"]["train"] == {
        "images": 37,
        "classes": 2,
        "fewest": {"class": "dog", "images": 4},
        "most": {"class": "cat", "images": 33},
    }
    assert list(found["splits"]) == ["train", "val"]
    assert report.notes == (
        "'test' has no images of its own: 'val' stands for it",
        "repeated (1): images that are twice in their split",
    )
    assert "'train/dog/0.png' in train and 'val/dog/x.png' in val" in report.problems[1].sentence


def test_uneven_classes_are_noted(tmp_path):
    files = {f"train/cat/{i}.png": png(i) for i in range(23)} | {
        f"train/dog/{i}.png": png(50 + i) for i in range(2)
    }
    notes = check(open_dataset(as_folder(files | {"val/cat/y.png": png(99)}, tmp_path))).notes
    assert "uneven: 'cat' has 23 images in train and 'dog' has 2" in notes


@pytest.mark.bad_input
def test_what_does_not_apply_is_refused_by_its_being_given(tmp_path):
    path = as_folder(SETS["classify folders"](), tmp_path)
    with pytest.raises(ValueError, match=r"data to classify has no --source, got 'en' for .*; it has --seed"):
        open_dataset(path, "classify", source="en", target=None)
    with pytest.raises(ValueError, match="there are no sentence pairs in"):
        open_dataset(path, source="en")
    with pytest.raises(ValueError, match=r"unknown kind of data 'clasify', .* did you mean 'classify'"):
        open_dataset(path, "clasify")
    with pytest.raises(TypeError, match="got dict"):
        check({})


def test_images_are_known_without_the_package_that_knows_languages(tmp_path, monkeypatch):
    def missing(name):
        raise ImportError("the names of languages need babel")

    monkeypatch.setattr("sightline.data.pair_files.is_language", missing)
    assert kind_of(as_folder(SETS["caption coco"](), tmp_path)) == "caption"
