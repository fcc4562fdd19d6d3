"""``sightline demo`` from nothing to its report, on a model and a set too small to learn anything."""

import base64
import io
import json
import re

import pytest

from sightline.cli import main
from sightline.show.curves import curves, read_metrics
from sightline.tasks.caption.presets import PRESETS

pytest.importorskip("accelerate")

TINY = {
    "model": {
        "image_size": 64,
        "patch": 16,
        "d_model": 12,
        "n_heads": 3,
        "n_layers": 2,
        "d_ff": 14,
        "max_length": 9,
        "look_layer": None,
    },
    "data": {"n_train": 11, "n_val": 5, "n_test": 7},
    "train": {"epochs": 2, "batch_size": 4, "log_every": 1, "metric": "bleu4", "tensorboard": False},
}
SCORES = [
    "bleu1",
    "bleu2",
    "bleu3",
    "bleu4",
    "rouge_l",
    "cider",
    "attribute_accuracy",
    "grounding",
    "grounding_chance",
]


def run(*args):
    with pytest.raises(SystemExit) as ended:
        main([str(arg) for arg in args])
    return ended.value.code or 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRESETS, "demo", TINY)
        assert run("demo", "--out", out, "--seed", 3) == 0
    return out


def explorers(text):
    return list(map(json.loads, re.findall(r"data-explorer>(.*?)</script>", text)))


def page(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


def test_it_leaves_a_run_a_report_and_pictures_to_try(folder):
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "tokenizer.json", "model.safetensors", "metrics.csv", "report.html"} <= names
    assert sorted(path.name for path in (folder / "examples").iterdir()) == [
        "0.png",
        "1.png",
        "2.png",
        "3.png",
    ]
    assert json.loads((folder / "config.json").read_text())["train"]["seed"] == 3
    assert re.search(r"from nothing, in [\d.]+ (seconds|minutes)\.", page(folder))


def test_the_report_is_one_file_and_holds_all(folder):
    text = page(folder)
    assert not re.search(r"(src|href)=\"(?!data:)|<link|@import|https?://", text)
    assert text.count('src="data:image/png') == 1 + 3  # the curve, the steps of the word
    assert len(explorers(text)) == 6 + 3  # shown; the worst
    for data in re.findall(r'src="data:image/png;base64,([^"]+)"', text):
        assert base64.b64decode(data).startswith(b"\x89PNG")
    for heading in (
        "Scenes it has not seen",
        "How it came to one word",
        "What to try next",
        "How good it is",
    ):
        assert f"<h2>{heading}" in text


def test_the_report_has_the_scores_that_evaluate_prints(folder, capsys):
    capsys.readouterr()
    assert run("evaluate", folder, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == SCORES
    rows = dict(re.findall(r"<tr><td>(\w+)</td><td>([\d.]+)</td><td class=\"text\">[^<]", page(folder)))
    assert rows == {name: f"{value:.3f}" for name, value in found.items()}


def test_captions_of_the_report_are_those_of_the_run(folder, capsys):
    capsys.readouterr()
    assert run("caption", folder, folder / "examples" / "0.png") == 0
    text = capsys.readouterr().out.split(": ", 1)[1].strip()
    meta = explorers(page(folder))[0]["meta"]
    assert " ".join(meta["tokens"][0]["words"]) == text


def test_the_path_is_printed_last(folder, capsys):
    capsys.readouterr()
    assert run("demo", "--out", folder, "--seed", 3, "--resume") == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(folder / "report.html")


def test_a_run_that_goes_on_states_no_time_and_says_what_it_keeps(folder, capsys):
    capsys.readouterr()
    assert run("demo", "--out", folder, "--seed", 3, "--resume") == 0
    assert "the run goes on as it was started" in capsys.readouterr().err
    assert "from nothing. It cuts" in page(folder)


def test_the_results_of_a_trained_run_have_its_curve(folder, tmp_path):
    assert run("evaluate", folder, "--out", tmp_path, "--limit", 2) == 0
    text = (tmp_path / "results.html").read_text(encoding="utf-8")
    assert text.count("<figure") == 1
    assert len(explorers(text)) == 2
    assert 'alt="The loss and the scores by training step"' in text


def test_the_curve_is_that_of_the_run(folder):
    metrics = read_metrics(folder / "metrics.csv")
    assert len(metrics["loss"]) >= 2
    file = io.BytesIO()
    curves(metrics, stacked=True).savefig(file, format="png")
    (shown,) = re.findall(r'alt="The loss and the scores[^>]*base64,([^"]+)"', page(folder))
    assert base64.b64decode(shown) == file.getvalue()


@pytest.mark.bad_input
def test_a_run_is_not_touched_unasked(folder, capsys):
    before = page(folder)
    capsys.readouterr()
    assert run("demo", "--out", folder) == 2
    err = capsys.readouterr().err
    assert "is not empty" in err
    assert "--resume" in err
    assert page(folder) == before


@pytest.mark.bad_input
def test_an_unknown_preset(tmp_path, capsys):
    capsys.readouterr()
    assert run("demo", "--out", tmp_path / "new", "--preset", "huge") == 2
    assert "unknown preset 'huge' for caption" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
