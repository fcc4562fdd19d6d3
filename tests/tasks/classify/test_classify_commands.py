"""Classification from the command line: train on a folder, evaluate, classify, look; and what is refused."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.cli import main
from sightline.data.class_set import fit_image
from sightline.data.classes import read_classes
from sightline.data.images import read_image
from sightline.models.vit import VisionTransformer
from sightline.tasks.classify.attention import glance

SMALL = ["--d-model", 16, "--n-heads", 2, "--n-layers", 2, "--d-ff", 16, "--epochs", 1, "--batch-size", 16]
QUICK = [*SMALL, "--threads", 0, "--no-tensorboard", "--device", "cpu"]


def run(capsys, *args):
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, args)))
    out, err = capsys.readouterr()
    return ended.value.code or 0, out, err


def refused(capsys, *args):
    """The one sentence that answers, exit code 2."""
    code, out, err = run(capsys, *args)
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    return err


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
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, args)))
    assert not ended.value.code
    return out


def test_a_run_holds_the_names_and_the_settings(trained, data):
    config = json.loads((trained / "config.json").read_text())
    assert config["kind"] == "classify"
    assert config["data"]["names"] == ["blue", "red"]
    assert config["data"]["source"] == str(data)
    assert config["model"]["n_classes"] == 2
    assert config["model"]["stem"] == "conv"  # of the default preset


def test_evaluate_prints_the_promised_names(trained, capsys, tmp_path):
    code, out, err = run(capsys, "evaluate", trained, "--json", "--out", tmp_path / "scores")
    assert code == 0
    assert set(json.loads(out)) == {"accuracy", "top5", "ece"}
    assert "2 images of split 'test'" in err
    lines = (tmp_path / "scores" / "confusion.csv").read_text().splitlines()
    assert lines[0] == '"is, was taken for",blue,red'
    for line in lines[1:]:  # one image of each class, down
        assert sum(map(int, line.split(",")[1:])) == 1
    assert "data:image/png" in (tmp_path / "scores" / "confusion.html").read_text()
    code, out, _ = run(capsys, "evaluate", trained, "--split", "all")
    assert code == 0
    assert "12 images" in out


def test_classify_takes_images_of_any_size_and_colours(trained, data, capsys, tmp_path):
    Image.new("L", (40, 30), 9).save(tmp_path / "grey.png")
    Image.new("RGBA", (5, 50), (200, 0, 0, 90)).save(tmp_path / "clear.png")
    images = [tmp_path / "grey.png", tmp_path / "clear.png", data / "red" / "0.png"]
    code, out, _ = run(capsys, "classify", trained, *images, "--top", 2)
    assert code == 0
    assert [line.split(": ")[0] for line in out.splitlines()] == list(map(str, images))
    code, out, _ = run(capsys, "classify", trained, *images, "--json", "--out", tmp_path / "maps")
    found = json.loads(out)["classes"]
    assert [x["class"] in {"blue", "red"} for x in found] == [True] * 3
    assert len(list((tmp_path / "maps").glob("*.png"))) == 3


def test_look_shows_heads_as_a_table_a_figure_and_a_page(trained, data, capsys, tmp_path):
    image = data / "red" / "0.png"
    code, out, _ = run(capsys, "look", trained, image)
    assert code == 0
    table = out.splitlines()
    assert len(table) == 2 + 4 + 1  # guesses and header, two layers of two heads, the legend
    code, out, _ = run(capsys, "look", trained, image, "--json", "--out", tmp_path / "a.html")
    found = json.loads(out)
    assert np.array(found["heads"]).shape == (2, 2, 4)
    seen = glance(VisionTransformer.load(trained), fit_image(read_image(image, size=8), 8, 3)[None])
    expected = {name: getattr(seen, name)[0] for name in ("rollout", "heads", "received")}
    for name, values in (expected | {"distance": seen.distance}).items():
        torch.testing.assert_close(torch.tensor(found[name]), values, rtol=1e-4, atol=1e-6)
    for line, weights in zip(table[2:6], np.array(found["heads"]).reshape(4, 4), strict=True):
        assert line.split()[3:5] == list(map(str, divmod(int(weights.argmax()), 2)))
    assert sum(found["rollout"]) == pytest.approx(1, rel=1e-4)
    assert (tmp_path / "a.html").read_text().count("data:image/png") == 4
    for extra, title in ((["--layer", 1], "layer 1 head 1"), ([], "rollout")):
        code, _, _ = run(capsys, "look", trained, image, *extra, "--out", tmp_path / "b.svg")
        assert code == 0
        assert f"<!-- {title} -->" in (tmp_path / "b.svg").read_text()


def test_an_ended_run_is_left_as_it_is_and_seeds_fix_it(data, capsys, tmp_path):
    base = ["train", "classify", "--data", data, "--image-size", 8, "--patch", 4, *QUICK, "--seed", 3]
    assert run(capsys, *base, "--out", tmp_path / "one")[0] == 0
    assert run(capsys, *base, "--out", tmp_path / "two")[0] == 0
    one, two = ((tmp_path / x / "model.safetensors").read_bytes() for x in ("one", "two"))
    assert one == two
    assert run(capsys, "train", "classify", "--out", tmp_path / "one", "--resume", "--data", data)[0] == 0
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == one
    assert "is not empty" in refused(capsys, *base, "--out", tmp_path / "one")


def test_the_digits_tell_where_the_ink_is(capsys, tmp_path):
    out = tmp_path / "digits"
    args = ["train", "classify", "--data", "digits", "--fold", 1, "--steps", 2, "--out", out, *QUICK[-5:]]
    assert run(capsys, *args, "--size", "micro", "--n-layers", 2)[0] == 0
    code, text, err = run(capsys, "evaluate", out, "--json", "--most", 30)
    assert code == 0
    assert "top-1 of 30 images" in err
    assert set(json.loads(text)) == {"accuracy", "top5", "ece", "ink", "ink_chance", "ink_ratio"}
    config = json.loads((out / "config.json").read_text())
    assert config["data"]["fold"] == 1
    assert config["model"]["d_model"] == 48  # of the size
    assert config["model"]["n_layers"] == 2  # flags come before it


@pytest.mark.bad_input
def test_each_mistake_has_its_sentence(trained, data, capsys, tmp_path):
    train = ["train", "classify", *QUICK, "--out", tmp_path / "run"]
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "a.png").write_text("x")
    assert "no subfolders and 1 files" in refused(capsys, *train, "--data", tmp_path / "flat")
    assert "'nowhere'" in refused(capsys, *train, "--data", "nowhere")
    assert "a training needs data" in refused(capsys, *train)
    lonely = pictures(tmp_path / "lonely")
    for path in sorted((lonely / "red").iterdir())[1:]:
        path.unlink()
    assert "'red' has 1" in refused(capsys, *train, "--data", lonely)
    assert "patch=5 for image_size=8; 1, 2, 4, 8 do" in refused(
        capsys, *train, "--data", data, "--image-size", 8, "--patch", 5, "--stem", "patches"
    )
    assert "unknown size 'giant'" in refused(capsys, *train, "--data", data, "--size", "giant")
    assert "unknown preset 'fashon'" in refused(capsys, *train, "--data", data, "--preset", "fashon")
    assert not (tmp_path / "run").exists()


@pytest.mark.bad_input
def test_images_that_can_not_be_classified(trained, data, capsys, tmp_path):
    (tmp_path / "text.png").write_text("hello")
    assert "it is text" in refused(capsys, "classify", trained, tmp_path / "text.png")
    assert "no.png" in refused(capsys, "classify", trained, tmp_path / "no.png")
    assert "is a folder" in refused(capsys, "classify", trained, tmp_path)
    assert "--top must be at least 1, got 0" in refused(
        capsys, "classify", trained, data / "red" / "0.png", "--top", 0
    )
    two = [data / "red" / "0.png", data / "red" / "1.png"]
    assert "got 2 and --out" in refused(capsys, "classify", trained, *two, "--out", tmp_path / "a.png")
    assert "between 0 and 1, got '7'" in refused(capsys, "look", trained, two[0], "--layer", 7)
    assert "--head 1" in refused(capsys, "look", trained, two[0], "--head", 1)
    assert "no split 'odd' in" in refused(capsys, "evaluate", trained, "--split", "odd")
    other = pictures(tmp_path / "other")
    (other / "red").rename(other / "green")
    assert "'green' is in one of the two only" in refused(capsys, "evaluate", trained, "--data", other)
    assert "'gone' does not exist" in refused(capsys, "evaluate", trained, "--data", "gone")


@pytest.mark.bad_input
def test_runs_that_are_damaged(trained, data, capsys, tmp_path):
    import shutil

    image = data / "red" / "0.png"
    broken = tmp_path / "broken"
    shutil.copytree(trained, broken)
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"kind": "caption"}))
    assert "is of kind 'caption'" in refused(capsys, "classify", broken, image)
    (broken / "config.json").write_text(json.dumps(config | {"data": {**config["data"], "names": ["red"]}}))
    assert "names 1 classes and its model has 2" in refused(capsys, "classify", broken, image)
    (broken / "config.json").write_text(json.dumps(config))
    weights = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(weights[:100])
    assert "100 bytes" in refused(capsys, "classify", broken, image)


def test_broken_files_are_named_and_left_out(data, capsys, tmp_path):
    root = pictures(tmp_path / "some")
    for i in range(7):
        (root / "red" / f"x{i}.png").write_text("not an image")
    args = ["train", "classify", "--data", root, "--out", tmp_path / "run", "--image-size", 8, "--patch", 4]
    code, _, err = run(capsys, *args, *QUICK)
    assert code == 0
    assert err.count("left out: ") == 6
    assert "2 more files" in err
    assert torch.get_num_threads() >= 1


@pytest.mark.bad_input
def test_a_run_goes_on_with_the_images_it_began_with(capsys, tmp_path):
    root, out = pictures(tmp_path / "some"), tmp_path / "run"
    args = ["train", "classify", "--out", out]
    assert run(capsys, *args, "--data", root, "--image-size", 8, "--patch", 4, *QUICK)[0] == 0
    before = (out / "config.json").read_text()
    assert "split_seed was 0" in refused(capsys, *args, "--resume", "--split-seed", 5)
    assert "mixup was 0.2" in refused(capsys, *args, "--resume", "--mixup", 0.7)
    Image.new("RGB", (9, 9)).save(root / "red" / "more.png")
    assert "counts was [8, 2, 2]" in refused(capsys, *args, "--resume")
    assert (out / "config.json").read_text() == before
    code, _, err = run(capsys, "evaluate", out)
    assert code == 0
    assert "had 8, 2, 2 images, now 9, 2, 2" in err


def test_what_stands_for_a_split_is_told_and_counted_once(trained, capsys, tmp_path):
    pictures(tmp_path / "train")
    pictures(tmp_path / "val", n=3)
    code, out, err = run(capsys, "evaluate", trained, "--data", tmp_path, "--split", "all")
    assert code == 0
    assert "18 images" in out
    assert "'test' has no images of its own, those of 'val' stand for it" in err


def test_evaluate_names_the_files_it_leaves_out(trained, capsys, tmp_path):
    root = pictures(tmp_path / "some")
    (root / "red" / "x.png").write_text("not an image")
    code, _, err = run(capsys, "evaluate", trained, "--data", root)
    assert code == 0
    assert "left out: " in err


def test_classes_in_another_order_are_told_apart_by_name(trained, data, capsys, tmp_path):
    found = read_classes(data, image_size=8)
    arrays = {f"x_{name}": part.images.numpy() for name, part in found.parts.items()}
    arrays |= {f"y_{name}": 1 - part.labels.numpy() for name, part in found.parts.items()}
    np.savez(tmp_path / "a.npz", classes=np.array(["red", "blue"]), **arrays)
    one = run(capsys, "evaluate", trained, "--json", "--split", "all")
    two = run(capsys, "evaluate", trained, "--json", "--split", "all", "--data", tmp_path / "a.npz")
    assert (one[0], json.loads(one[1])) == (two[0], pytest.approx(json.loads(two[1])))


@pytest.mark.bad_input
def test_what_a_classifier_has_not_is_refused(trained, data, capsys):
    image = data / "red" / "0.png"
    assert "--beam 3" in refused(capsys, "look", trained, image, "--beam", 3)
    assert "--beam 3" in refused(capsys, "evaluate", trained, "--beam", 3)
    assert "--meteor" in refused(capsys, "evaluate", trained, "--meteor")


def test_a_folder_may_have_a_dot_in_its_name(trained, data, capsys, tmp_path):
    (tmp_path / "maps.2").mkdir()
    images = [data / "red" / "0.png", data / "red" / "1.png"]
    for n in (1, 2):
        assert run(capsys, "classify", trained, *images[:n], "--out", tmp_path / "maps.2")[0] == 0
        assert len(list((tmp_path / "maps.2").iterdir())) == n
    (tmp_path / "file").write_text("x")
    assert "is a file" in refused(capsys, "classify", trained, *images, "--out", tmp_path / "file")


def test_look_and_classify_say_the_same_with_two_views(trained, data, capsys, tmp_path):
    import shutil

    shutil.copytree(trained, tmp_path / "two")
    config = json.loads((trained / "config.json").read_text())
    config["data"]["views"] = 2
    (tmp_path / "two" / "config.json").write_text(json.dumps(config))
    image = data / "red" / "0.png"
    said = json.loads(run(capsys, "classify", tmp_path / "two", image, "--json", "--top", 2)[1])
    looked = json.loads(run(capsys, "look", tmp_path / "two", image, "--json")[1])
    once = json.loads(run(capsys, "look", trained, image, "--json")[1])
    assert said["classes"][0]["guesses"] == looked["guesses"]
    assert once["guesses"] != looked["guesses"]
