"""Images with classes: folders, npz files and digits, and the sentences for those that are none."""

import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.data.class_set import ClassSet, LabelledImages, fit_image, hold_out
from sightline.data.classes import read_classes
from sightline.data.digits import digits
from tests.data.picture_files import pixels


def folder(root, classes, **options):
    """A folder with so many pictures of each class, none like another."""
    for c, (name, n) in enumerate(classes.items()):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(n):
            Image.fromarray(pixels(100 * c + i, **options)).save(root / name / f"{i:02d}.png")
    return root


def test_a_folder_is_split_by_a_seed_with_some_of_each_class_everywhere(tmp_path):
    found = read_classes(folder(tmp_path, {"dog": 10, "cat": 7}), image_size=8)
    assert found.names == ("cat", "dog")
    assert {name: len(part) for name, part in found.parts.items()} == {"train": 13, "val": 2, "test": 2}
    for part in found.parts.values():
        assert part.images.shape[1:] == (3, 8, 8)
        assert set(part.labels.tolist()) == {0, 1}
    whole = torch.cat([part.images for part in found.parts.values()]).flatten(1)
    assert len(whole.unique(dim=0)) == 17
    again = read_classes(tmp_path, image_size=8)
    assert all(torch.equal(again.split(s).images, found.split(s).images) for s in found.parts)
    other = read_classes(tmp_path, image_size=8, seed=1)
    assert not torch.equal(other.split("train").images, found.split("train").images)


def test_a_split_that_is_there_is_kept(tmp_path):
    folder(tmp_path / "train", {"a": 2, "b": 1})
    folder(tmp_path / "valid", {"b": 3})
    folder(tmp_path / "test", {"a": 1})
    found = read_classes(tmp_path, image_size=5)
    assert {name: part.labels.tolist() for name, part in found.parts.items()} == {
        "train": [0, 0, 1],
        "val": [1, 1, 1],
        "test": [0],
    }


def test_where_nothing_is_held_out_another_split_stands_for_it(tmp_path):
    folder(tmp_path / "split" / "train", {"a": 4, "b": 4})
    folder(tmp_path / "split" / "val", {"a": 1, "b": 1})
    assert read_classes(tmp_path / "split", image_size=5).stand_ins == {"test": "val"}
    found = read_classes(tmp_path / "split" / "train", image_size=5, val=0.0)
    assert found.stand_ins == {"val": "test"}
    assert {name: len(part) for name, part in found.parts.items()} == {"train": 6, "val": 2, "test": 2}
    found = read_classes(tmp_path / "split" / "train", image_size=5, test=0.0)
    assert found.stand_ins == {"test": "val"}
    assert len(found.split("train")) == 6
    assert digits(val=0.0).stand_ins == {"val": "test"}
    assert len(digits(val=0.0).split("train")) == 1437
    assert digits().stand_ins == {}


def test_images_of_any_size_colour_and_depth_come_out_alike(tmp_path):
    root = folder(tmp_path, {"a": 4, "b": 4})
    Image.fromarray(pixels(1)[..., 0]).save(root / "a" / "grey.png")
    Image.fromarray(np.dstack([pixels(2), np.zeros((11, 13), np.uint8)])).save(root / "a" / "clear.png")
    Image.fromarray(pixels(3, height=40, width=9)).save(root / "b" / "tall.JPG")
    (root / "b" / "notes.txt").write_text("not an image, nor called one")
    found = read_classes(root, image_size=7)
    everything = torch.cat([part.images for part in found.parts.values()])
    assert everything.shape == (11, 3, 7, 7)
    assert (everything == 255).flatten(1).all(1).sum() == 1  # what is clear lies on white
    assert found.problems == ()
    assert read_classes(root, image_size=7, channels=1).split("test").images.shape[1:] == (1, 7, 7)


def test_an_unreadable_file_is_named_and_left_out(tmp_path):
    root = folder(tmp_path, {"a": 4, "b": 4})
    (root / "a" / "broken.png").write_text("hello")
    found = read_classes(root, image_size=7)
    assert sum(map(len, found.parts.values())) == 8
    (problem,) = found.problems
    assert (problem.kind, problem.name) == ("broken", "a/broken.png")
    assert "it is text" in problem.sentence
    (root / "b" / "phone.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    sentence = read_classes(root).problems[-1].sentence
    assert "phone.HEIC' is not an image that can be read; save it as JPEG" in sentence


def test_a_set_too_large_for_memory_lies_in_files_each_of_its_splits_too(tmp_path, monkeypatch):
    root = folder(tmp_path, {"a": 4, "b": 4})
    (root / "b" / "broken.png").write_text("hello")
    expected = read_classes(root, image_size=7)
    mapped = []
    memmap = np.memmap

    def spied(*args, **options):
        mapped.append(memmap(*args, **options))
        return mapped[-1]

    monkeypatch.setattr(np, "memmap", spied)
    monkeypatch.setattr("sightline.data.class_set.IN_MEMORY", 10)
    monkeypatch.setattr("sightline.data.class_set._AT_ONCE", 3)
    found = read_classes(root, image_size=7)
    for split, part in found.parts.items():
        assert torch.equal(part.images, expected.split(split).images)
        assert part.images.data_ptr() in {x.ctypes.data for x in mapped}


@pytest.mark.parametrize("layout", ["NHW", "NHWC", "NCHW", "float"])
def test_an_npz_in_any_usual_layout(tmp_path, layout):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (9, 6, 6, 1), dtype=np.uint8)
    given = {
        "NHW": images[..., 0],
        "NHWC": images,
        "NCHW": images.transpose(0, 3, 1, 2),
        "float": images / 255,
    }[layout]
    labels = np.array([5, 3, 3, 5, 5, 3, 3, 5, 5])
    np.savez(tmp_path / "a.npz", images=given, labels=labels)
    found = read_classes(tmp_path / "a.npz")
    assert found.names == ("3", "5")
    everything = torch.cat([part.images for part in found.parts.values()]).flatten(1)
    expected = torch.from_numpy(images).permute(0, 3, 1, 2).flatten(1)
    assert {tuple(x) for x in everything.tolist()} == {tuple(x) for x in expected.tolist()}


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': (",
        "(" * 300,
        "\0",
        "  x\n y",
        "{1: 2, 'a': 3}",
        "{[]: 1}",
        "-" * 9000 + "1",
        "{'descr': '<f4,,', 'fortran_order': False, 'shape': ()}",
    ],
    ids=["open", "nested", "null", "indented", "keys", "unhashable", "deep", "type"],
)
def test_an_npz_whose_header_is_no_python_is_refused_in_a_sentence(tmp_path, header):
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    with zipfile.ZipFile(tmp_path / "lie.npz", "w") as archive:
        archive.writestr("images.npy", array)
    with pytest.raises(ValueError, match=r"lie\.npz' can't be read as an \.npz: "):
        read_classes(tmp_path / "lie.npz")


def test_an_npz_with_a_split_and_names(tmp_path):
    x = np.arange(7 * 4 * 4, dtype=np.uint8).reshape(7, 4, 4)
    np.savez(
        tmp_path / "a.npz",
        x_train=x[:5],
        y_train=np.array([1, 0, 1, 0, 1]),
        x_test=x[5:],
        y_test=np.array([0, 1]),
        classes=np.array(["boot", "bag"]),
    )
    found = read_classes(tmp_path / "a.npz", val=0.34, image_size=8, channels=3)
    assert found.names == ("boot", "bag")
    assert found.split("test").labels.tolist() == [0, 1]
    assert [len(found.split(s)) for s in ("train", "val", "test")] == [3, 2, 2]
    assert found.split("train").images.shape == (3, 3, 8, 8)
    unheld = read_classes(tmp_path / "a.npz", val=0.0)
    assert unheld.split("train").images[:, 0].flatten(1).tolist() == x[:5].reshape(5, -1).tolist()
    assert len(unheld.split("val")) == 2


@pytest.mark.parametrize("kind", ["text", "bytes", "numbers", "floats"])
def test_labels_mean_the_classes_by_name_or_by_number(tmp_path, kind):
    classes, labels = np.array(["dog", "cat", "ape"]), np.array([0, 1, 1, 0, 0, 1, 2, 2, 2])
    given = {
        "text": classes[labels],
        "bytes": classes[labels].astype("S"),
        "numbers": labels,
        "floats": labels.astype(float),
    }[kind]
    x = np.broadcast_to(labels.astype(np.uint8)[:, None, None], (9, 4, 4))
    np.savez(tmp_path / "a.npz", images=x, labels=given, classes=classes)
    found = read_classes(tmp_path / "a.npz")
    assert found.names == ("dog", "cat", "ape")
    for part in found.parts.values():
        assert part.labels.tolist() == part.images[:, 0, 0, 0].tolist()


def test_labels_without_classes_are_their_names(tmp_path):
    x = np.zeros((6, 4, 4), np.uint8)
    for labels, names in (([b"b", b"a"] * 3, ("a", "b")), ([1.0, 0.0] * 3, ("0", "1"))):
        np.savez(tmp_path / "a.npz", images=x, labels=np.array(labels))
        assert read_classes(tmp_path / "a.npz").names == names


def test_an_alpha_channel_lies_on_white(tmp_path):
    images = np.zeros((6, 5, 5, 4), np.uint8)
    images[:3, ..., 3] = 255
    np.savez(tmp_path / "a.npz", images=images, labels=np.array([0, 0, 0, 1, 1, 1]))
    found = read_classes(tmp_path / "a.npz")
    for part in found.parts.values():
        for image, label in zip(part.images, part.labels, strict=True):
            assert image.unique().tolist() == [255 if label else 0]


def test_digits_are_folds_that_share_nothing_and_miss_nothing():
    tests = []
    for fold in range(5):
        found = digits(fold=fold)
        parts = [found.split(s) for s in ("train", "val", "test")]
        assert sum(map(len, parts)) == 1797
        assert parts[0].images.shape[1:] == (1, 8, 8)
        assert parts[0].images.max() == 255
        tests.append(parts[2])
    assert sum(map(len, tests)) == 1797
    assert not torch.equal(digits(seed=1).split("test").images, tests[0].images)
    assert all(x.labels.bincount().min() >= 34 for x in tests)


def test_hold_out_takes_a_share_of_each_class_and_at_least_one():
    labels = torch.tensor([0] * 20 + [1] * 3)
    held = hold_out(labels, 0.25, seed=3)
    assert labels[held].bincount().tolist() == [5, 1]
    assert not torch.equal(held, hold_out(labels, 0.25, seed=4))


def test_an_image_fits_whatever_it_was():
    image = torch.randint(0, 256, (3, 9, 9), dtype=torch.uint8)
    assert torch.equal(fit_image(image, 9, 3), image)
    one = fit_image(image, 9, 1)
    light = 0.299 * image[0] + 0.587 * image[1] + 0.114 * image[2]
    assert (one[0] - light).abs().max() <= 0.51
    assert torch.equal(fit_image(one, 9, 3), one.expand(3, -1, -1))


@pytest.mark.bad_input
def test_folders_that_are_no_classes(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_classes(tmp_path / "nowhere")
    (tmp_path / "1.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"no subfolders and 1 files; sort the images into subfolders"):
        read_classes(tmp_path)
    with pytest.raises(ValueError, match=r"1\.png' is neither"):
        read_classes(tmp_path / "1.png")
    folder(tmp_path / "one", {"cat": 4, "dog": 1})
    with pytest.raises(ValueError, match=r"at least 3 images.*'dog' has 1"):
        read_classes(tmp_path / "one")
    folder(tmp_path / "only", {"cat": 4})
    with pytest.raises(ValueError, match="at least 2 classes"):
        read_classes(tmp_path / "only")
    folder(tmp_path / "split" / "train", {"a": 2, "b": 2})
    folder(tmp_path / "split" / "test", {"c": 2})
    with pytest.raises(ValueError, match="'c' is in"):
        read_classes(tmp_path / "split")
    folder(tmp_path / "untrained" / "test", {"a": 2, "b": 2})
    with pytest.raises(ValueError, match="no train"):
        read_classes(tmp_path / "untrained")
    (tmp_path / "one" / "dog" / "x.png").write_text("not an image")
    with pytest.raises(ValueError, match=r"'dog' has 1; .*left out, the first: .*x\.png' is not an image"):
        read_classes(tmp_path / "one")
    with pytest.raises(ValueError, match="channels=4"):
        read_classes(tmp_path / "one", channels=4)
    for size in (0, -5):
        with pytest.raises(ValueError, match=f"image_size must be at least 1 pixel, got {size}"):
            read_classes(tmp_path / "one", image_size=size)


@pytest.mark.bad_input
def test_a_class_with_one_image_in_train_of_which_some_are_to_be_held_out(tmp_path):
    folder(tmp_path / "train", {"a": 4, "b": 1})
    folder(tmp_path / "test", {"a": 2, "b": 2})
    with pytest.raises(ValueError, match=r"at least 2 images in train, .*choose by, 'b' has 1"):
        read_classes(tmp_path)
    assert len(read_classes(tmp_path, val=0.0).split("train")) == 5
    folder(tmp_path / "train", {"a": 4, "b": 4})
    with pytest.raises(ValueError, match=r"'a' has none left, val=0\.99 .*hold out less"):
        read_classes(tmp_path, val=0.99, deal="0.1")
    folder(tmp_path / "few", {"a": 3, "b": 3})
    with pytest.raises(ValueError, match=r"'a' has none left, test=0\.05 and val=0\.9 .*hold out less"):
        read_classes(tmp_path / "few", val=0.9, test=0.05)


@pytest.mark.bad_input
@pytest.mark.parametrize("strange", ["annotations", "valid"])
def test_a_folder_beside_the_splits_is_no_class(tmp_path, strange):
    for name in ("train", "val", strange):
        folder(tmp_path / name, {"a": 3, "b": 3})
    with pytest.raises(ValueError, match=r"train, val and test, each once, .* has '(annotations|val)' too"):
        read_classes(tmp_path)


def test_a_class_may_be_called_train(tmp_path):
    assert read_classes(folder(tmp_path, {"bus": 3, "train": 3}), image_size=4).names == ("bus", "train")


@pytest.mark.bad_input
def test_npz_files_that_are_no_classes(tmp_path):
    path = tmp_path / "a.npz"
    path.write_text("nothing")
    with pytest.raises(ValueError, match=r"can't be read as an \.npz"):
        read_classes(path)
    np.savez(path, pictures=np.zeros(3))
    with pytest.raises(ValueError, match="holds pictures"):
        read_classes(path)
    x = np.zeros((6, 4, 4), np.uint8)
    np.savez(path, images=x, labels=np.zeros(5, int))
    with pytest.raises(ValueError, match="6 images and 5 labels"):
        read_classes(path)
    np.savez(path, images=x.astype(np.int64), labels=np.arange(6) % 2)
    with pytest.raises(ValueError, match="got int64 for images"):
        read_classes(path)
    np.savez(path, images=np.zeros((6, 16), np.uint8), labels=np.arange(6) % 2)
    with pytest.raises(ValueError, match=r"\(6, 16\) for images"):
        read_classes(path)
    np.savez(path, images=x, labels=np.arange(6), classes=np.array(["a", "b"]))
    with pytest.raises(ValueError, match=r"from 0 to 1.* has 0 to 5"):
        read_classes(path)
    two = np.arange(6) % 2
    np.savez(path, images=np.uint8(3), labels=two)
    with pytest.raises(ValueError, match="got 1 images and 6 labels"):
        read_classes(path)
    np.savez(path, images=np.zeros((6, 0, 4), np.uint8), labels=two)
    with pytest.raises(ValueError, match=r"\(6, 0, 4\) for images"):
        read_classes(path, image_size=8)
    np.savez(path, images=np.full((6, 4, 4), 255.0), labels=two)
    with pytest.raises(ValueError, match=r"float64 from 255 to 255 for images; divide"):
        read_classes(path)
    np.savez(path, images=np.full((6, 4, 4), np.nan), labels=two)
    with pytest.raises(ValueError, match="from nan to nan"):
        read_classes(path)
    np.savez(path, images=x, labels=two, classes=np.array(["a", "a"]))
    with pytest.raises(ValueError, match="'a' twice"):
        read_classes(path)
    np.savez(path, images=x, labels=np.array(["a", "c"] * 3), classes=np.array(["a", "b"]))
    with pytest.raises(ValueError, match=r"a, b, .* has 'c'"):
        read_classes(path)
    np.savez(path, images=x, labels=np.array([0, 0.5] * 3))
    with pytest.raises(ValueError, match=r"whole numbers or names, .* has 0\.5"):
        read_classes(path)
    np.savez(path, images=np.array([{}] * 6, dtype=object), labels=np.arange(6))
    with pytest.raises(ValueError, match="can't be read"):
        read_classes(path)


@pytest.mark.bad_input
def test_splits_and_folds_that_are_not_there():
    with pytest.raises(ValueError, match="there is no split 'dev' in '', which has 'train'"):
        ClassSet(("a",), {"train": LabelledImages(torch.zeros(0, 1, 1, 1), torch.zeros(0).long())}).split(
            "dev"
        )
    with pytest.raises(ValueError, match=r"fold must be in 0\.\.4, got 5"):
        digits(fold=5)
    with pytest.raises(ValueError, match="folds=1"):
        digits(folds=1)
    with pytest.raises(ValueError, match=r"174 of the rarest, got folds=175"):
        digits(folds=175)
