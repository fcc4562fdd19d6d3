"""What only classification has at the command line; what every task has is in ../test_contract.py."""

import json
import re

import numpy as np
import pytest
import torch
from PIL import Image

import sightline as sl
from sightline.data.classes import read_classes
from tests.command import run
from tests.tasks.edited_runs import drop_records

SMALL = ["--d-model", 16, "--n-heads", 2, "--n-layers", 2, "--d-ff", 16, "--epochs", 1, "--batch-size", 16]
QUICK = [*SMALL, "--threads", 0, "--no-tensorboard", "--device", "cpu"]


def refused(*args):
    """The one sentence that answers, exit code 2."""
    result = run(*args)
    assert (result.code, result.out) == (2, "")
    assert "Traceback" not in result.err
    return result.err


def pictures(root, n=6):
    for i, name in enumerate(("blue", "red")):
        (root / name).mkdir(parents=True)
        for j in range(n):
            image = np.random.default_rng(10 * i + j).integers(0, 90, (9, 12, 3), dtype=np.uint8)
            image[..., 0 if name == "red" else 2] += 160
            Image.fromarray(image).save(root / name / f"{j}.png")
    return root


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return pictures(tmp_path_factory.mktemp("colours"))


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "colours"
    args = ["train", "classify", "--data", data, "--out", out, "--image-size", 8, "--patch", 4, *QUICK]
    assert run(*args).code == 0
    return out


def test_a_run_holds_the_names_and_the_settings(trained, data):
    config = json.loads((trained / "config.json").read_text())
    assert config["kind"] == "classify"
    assert config["data"]["names"] == ["blue", "red"]
    assert config["data"]["source"] == str(data)
    assert config["model"]["n_classes"] == 2
    assert config["model"]["stem"] == "conv"  # of the default preset


def test_evaluate_writes_what_was_taken_for_what(trained, tmp_path):
    assert "2 images of split 'test'" in run("evaluate", trained, "--json", "--out", tmp_path / "scores").err
    lines = (tmp_path / "scores" / "confusion.csv").read_text().splitlines()
    assert lines[0] == '"is, was taken for",blue,red'
    for line in lines[1:]:  # one image of each class, down
        assert sum(map(int, line.split(",")[1:])) == 1
    assert "Confusion" in (tmp_path / "scores" / "results.html").read_text()
    assert "12 images" in run("evaluate", trained, "--split", "all").out


def test_classify_takes_images_of_any_size_and_colours(trained, data, tmp_path):
    Image.new("L", (40, 30), 9).save(tmp_path / "grey.png")
    Image.new("RGBA", (5, 50), (200, 0, 0, 90)).save(tmp_path / "clear.png")
    images = [tmp_path / "grey.png", tmp_path / "clear.png", data / "red" / "0.png"]
    code, out, _ = run("classify", trained, *images, "--top", 2)
    assert code == 0
    assert [line.split(": ")[0] for line in out.splitlines()] == list(map(str, images))
    code, out, _ = run("classify", trained, *images, "--json", "--out", tmp_path / "maps")
    found = json.loads(out)["classes"]
    assert [x["class"] in {"blue", "red"} for x in found] == [True] * 3
    assert len(list((tmp_path / "maps").glob("*.png"))) == 3


def test_look_shows_every_head_for_the_class(trained, data, tmp_path):
    image = data / "red" / "0.png"
    table = run("look", trained, image).out.splitlines()
    assert len(table) == 2 + 4 + 1  # the class and the header, two layers of two heads, the legend
    found = run("look", trained, image, "--json").json
    assert np.array(found["heads"]).shape == (2, 2, 4)
    (p,) = sl.open_run(trained).predict([image])
    torch.testing.assert_close(torch.tensor(found["rollout"]), p.attention.summary[0])
    torch.testing.assert_close(torch.tensor(found["heads"]), p.attention.weights[:, :, 0])
    assert np.array(found["received"]).shape == (2, 4)
    assert np.array(found["distance"]).shape == (2, 2)
    for line, weights in zip(table[2:6], np.array(found["heads"]).reshape(4, 4), strict=True):
        row, column = divmod(int(weights.argmax()), 2)
        assert f"{row}, {column}" in line
    assert sum(found["rollout"]) == pytest.approx(1, rel=1e-4)
    run("look", trained, image, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    (explorer,) = map(json.loads, re.findall(r"data-explorer>(.*?)</script>", page))
    assert [sight["heads"] for sight in explorer["meta"]["sights"]] == [1, 2, 2]  # the rollout, two layers


def test_a_seed_fixes_a_training(data, trained, tmp_path):
    args = [
        "train",
        "classify",
        "--data",
        data,
        "--out",
        tmp_path / "two",
        "--image-size",
        8,
        "--patch",
        4,
        *QUICK,
    ]
    assert run(*args).code == 0
    one, two = ((x / "model.safetensors").read_bytes() for x in (trained, tmp_path / "two"))
    assert one == two


def test_the_digits_tell_where_the_ink_is(tmp_path):
    out = tmp_path / "digits"
    args = ["train", "classify", "--data", "digits", "--fold", 1, "--steps", 2, "--out", out, *QUICK[-5:]]
    assert run(*args, "--size", "micro", "--n-layers", 2).code == 0
    code, text, err = run("evaluate", out, "--json", "--most", 30)
    assert code == 0
    assert "top-1 of 30 images" in err
    assert set(json.loads(text)) == {"accuracy", "top5", "ece", "ink", "ink_chance", "ink_ratio"}
    config = json.loads((out / "config.json").read_text())
    assert config["data"]["fold"] == 1
    assert config["model"]["d_model"] == 48  # of the size
    assert config["model"]["n_layers"] == 2  # flags come before it


@pytest.mark.bad_input
def test_each_mistake_has_its_sentence(trained, data, tmp_path):
    train = ["train", "classify", *QUICK, "--out", tmp_path / "run"]
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "a.png").write_text("x")
    assert "no subfolders and 1 files" in refused(*train, "--data", tmp_path / "flat")
    assert "'nowhere'" in refused(*train, "--data", "nowhere")
    assert "a training needs data" in refused(*train)
    lonely = pictures(tmp_path / "lonely")
    for path in sorted((lonely / "red").iterdir())[1:]:
        path.unlink()
    assert "'red' has 1" in refused(*train, "--data", lonely)
    assert "patch=5 for image_size=8; 1, 2, 4, 8 do" in refused(
        *train, "--data", data, "--image-size", 8, "--patch", 5, "--stem", "patches"
    )
    assert "unknown size 'giant'" in refused(*train, "--data", data, "--size", "giant")
    assert "unknown preset 'fashon'" in refused(*train, "--data", data, "--preset", "fashon")
    assert not (tmp_path / "run").exists()


@pytest.mark.bad_input
def test_images_that_can_not_be_classified(trained, data, tmp_path):
    (tmp_path / "text.png").write_text("hello")
    assert "it is text" in refused("classify", trained, tmp_path / "text.png")
    assert "no.png" in refused("classify", trained, tmp_path / "no.png")
    assert "is a folder" in refused("classify", trained, tmp_path)
    assert "top must be at least 1, got 0" in refused("classify", trained, data / "red" / "0.png", "--top", 0)
    two = [data / "red" / "0.png", data / "red" / "1.png"]
    assert "got 2 and --out" in refused("classify", trained, *two, "--out", tmp_path / "a.png")
    assert "between 0 and 1, there are 2 layers, got 7" in refused("look", trained, two[0], "--layer", 7)
    assert "head must be between 0 and 3" in refused("look", trained, two[0], "--head", 9)
    assert "no split 'odd' in" in refused("evaluate", trained, "--split", "odd")
    other = pictures(tmp_path / "other")
    (other / "red").rename(other / "green")
    assert "'green' is in one of the two only" in refused("evaluate", trained, "--data", other)
    assert "there is no data 'gone'" in refused("evaluate", trained, "--data", "gone")


@pytest.mark.bad_input
def test_runs_that_are_damaged(trained, data, tmp_path):
    import shutil

    image = data / "red" / "0.png"
    broken = tmp_path / "broken"
    shutil.copytree(trained, broken)
    drop_records(broken)
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"kind": "caption"}))
    assert "is of kind 'caption'" in refused("classify", broken, image)
    (broken / "config.json").write_text(json.dumps(config | {"data": {**config["data"], "names": ["red"]}}))
    assert "names 1 classes and its model has 2" in refused("classify", broken, image)
    (broken / "config.json").write_text(json.dumps(config))
    weights = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(weights[:100])
    assert "100 bytes" in refused("classify", broken, image)


def test_broken_files_are_named_and_left_out(data, tmp_path):
    root = pictures(tmp_path / "some")
    for i in range(7):
        (root / "red" / f"x{i}.png").write_text("not an image")
    args = ["train", "classify", "--data", root, "--out", tmp_path / "run", "--image-size", 8, "--patch", 4]
    code, _, err = run(*args, *QUICK)
    assert code == 0
    assert err.count("left out: ") == 6
    assert "2 more files" in err
    assert torch.get_num_threads() >= 1


@pytest.mark.bad_input
def test_a_run_goes_on_with_the_images_it_began_with(tmp_path):
    root, out = pictures(tmp_path / "some"), tmp_path / "run"
    args = ["train", "classify", "--out", out]
    assert run(*args, "--data", root, "--image-size", 8, "--patch", 4, *QUICK).code == 0
    before = (out / "config.json").read_text()
    assert "split_seed was 0" in refused(*args, "--resume", "--split-seed", 5)
    assert "mixup was 0.2" in refused(*args, "--resume", "--mixup", 0.7)
    Image.new("RGB", (9, 9)).save(root / "red" / "more.png")
    assert "counts was [8, 2, 2]" in refused(*args, "--resume")
    assert (out / "config.json").read_text() == before
    code, _, err = run("evaluate", out)
    assert code == 0
    assert "had 8, 2, 2 images, now 9, 2, 2" in err


def test_what_stands_for_a_split_is_told_and_counted_once(trained, tmp_path):
    pictures(tmp_path / "train")
    pictures(tmp_path / "val", n=3)
    code, out, err = run("evaluate", trained, "--data", tmp_path, "--split", "all")
    assert code == 0
    assert "18 images" in out
    assert "'test' has no images of its own, those of 'val' stand for it" in err


def test_evaluate_names_the_files_it_leaves_out(trained, tmp_path):
    root = pictures(tmp_path / "some")
    (root / "red" / "x.png").write_text("not an image")
    code, _, err = run("evaluate", trained, "--data", root)
    assert code == 0
    assert "left out: " in err


def test_classes_in_another_order_are_told_apart_by_name(trained, data, tmp_path):
    found = read_classes(data, image_size=8)
    arrays = {f"x_{name}": part.images.numpy() for name, part in found.parts.items()}
    arrays |= {f"y_{name}": 1 - part.labels.numpy() for name, part in found.parts.items()}
    np.savez(tmp_path / "a.npz", classes=np.array(["red", "blue"]), **arrays)
    one = run("evaluate", trained, "--json", "--split", "all")
    two = run("evaluate", trained, "--json", "--split", "all", "--data", tmp_path / "a.npz")
    assert (one.code, one.json) == (two.code, pytest.approx(two.json))


def test_a_folder_may_have_a_dot_in_its_name(trained, data, tmp_path):
    (tmp_path / "maps.2").mkdir()
    images = [data / "red" / "0.png", data / "red" / "1.png"]
    for n in (1, 2):
        assert run("classify", trained, *images[:n], "--out", tmp_path / "maps.2").code == 0
        assert len(list((tmp_path / "maps.2").iterdir())) == n
    (tmp_path / "file").write_text("x")
    assert "is a file" in refused("classify", trained, *images, "--out", tmp_path / "file")


def test_look_and_classify_say_the_same_with_two_views(trained, data, tmp_path):
    import shutil

    shutil.copytree(trained, tmp_path / "two")
    config = json.loads((trained / "config.json").read_text())
    config["data"]["views"] = 2
    (tmp_path / "two" / "config.json").write_text(json.dumps(config))
    drop_records(tmp_path / "two")
    image = data / "red" / "0.png"
    said = run("classify", tmp_path / "two", image, "--json", "--top", 2).json
    looked = run("look", tmp_path / "two", image, "--json").json
    once = run("look", trained, image, "--json").json
    assert said["classes"][0]["guesses"] == looked["guesses"]
    assert once["guesses"] != looked["guesses"]


def test_look_takes_several_images(trained, data, tmp_path):
    images = [data / "red" / "0.png", data / "blue" / "0.png"]
    one = [run("look", trained, image, "--json").json for image in images]
    both = run("look", trained, *images, "--json").json["inputs"]
    assert [x["image"] for x in both] == [x["image"] for x in one]
    for a, b in zip(one, both, strict=True):
        np.testing.assert_allclose(a["rollout"], b["rollout"], atol=1e-5)
    done = run("look", trained, *images, "--out", tmp_path / "pages")
    assert [path.name for path in sorted((tmp_path / "pages").iterdir())] == ["0-1.html", "0-2.html"]
    assert done.err.count("\n") == 2
