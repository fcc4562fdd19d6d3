"""``sightline caption``, ``evaluate`` and ``look`` of a captioner: what only captions have."""

import json
import re

import matplotlib.image
import pytest
import torch

import sightline as sl
from sightline.cli import main
from tests.tasks.caption.caption_runs import make_data, make_run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions")
    make_data(folder / "data")
    make_run(folder / "run", folder / "data")
    make_run(folder / "recurrent", folder / "data", decoder="recurrent", d_hidden=13)
    return folder


def run(capsys, *args):
    """The exit code of a command, and what it wrote."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(arg) for arg in args])
    out, err = capsys.readouterr()
    return ended.value.code or 0, out, err


def test_captions_as_json_are_those_of_the_run(place, capsys):
    images = [place / "data" / f"{i}.png" for i in range(3)]
    wishes = {"temperature": 1.3, "top_k": 11, "top_p": 0.9, "seed": 5, "n_best": 7}
    flags = [word for name, value in wishes.items() for word in (f"--{name.replace('_', '-')}", value)]
    code, out, err = run(capsys, "caption", place / "run", *images, "--json", *flags)
    assert (code, err) == (0, "")
    expected = sl.open_run(place / "run", "cpu").predict(images, attention=False, **wishes)
    assert [row["n_best"] for row in json.loads(out)["captions"]] == [
        [{"caption": text, "score": pytest.approx(score)} for text, score in p.alternatives] for p in expected
    ]


def test_figures_of_one_or_many(place, tmp_path, capsys):
    images = [place / "data" / f"{i}.png" for i in range(2)]
    one = ["--out", tmp_path / "one.png", "--layer", 1, "--head", 1]
    assert run(capsys, "caption", place / "run", images[0], *one)[0] == 0
    assert matplotlib.image.imread(tmp_path / "one.png").ndim == 3
    _, out, err = run(capsys, "caption", place / "run", *images, "--out", tmp_path / "many")
    assert len(out.splitlines()) == 2
    assert err.splitlines() == [str(tmp_path / "many" / f"{i}.png") for i in range(2)]


@pytest.mark.parametrize("name", ["run", "recurrent"])
def test_results_are_one_page_with_the_scores(place, tmp_path, capsys, name):
    code, out, _ = run(capsys, "evaluate", place / name, "--out", tmp_path / "new", "--json", "--beam", 2)
    assert code == 0
    kept = json.loads((tmp_path / "new" / "scores.json").read_text())
    assert kept["scores"] == json.loads(out)
    assert list(kept["scores"]) == ["bleu1", "bleu2", "bleu3", "bleu4", "rouge_l", "cider"]
    rows = json.loads((tmp_path / "new" / "predictions.json").read_text())
    assert list(rows[0]) == ["input", "prediction", "score", "references", "cider"]
    page = (tmp_path / "new" / "results.html").read_text()
    assert not re.search(r"(src|href)=\"(?!data:)|<b>", page)
    assert page.count("data-explorer>") == 5


def test_look_chooses_a_layer(place, capsys):
    found = {}
    for layer in (0, 1):
        _, out, _ = run(capsys, "look", place / "run", place / "data" / "0.png", "--json", "--layer", layer)
        found[layer] = torch.tensor(json.loads(out)["weights"])
    _, out, _ = run(capsys, "look", place / "run", place / "data" / "0.png", "--json")
    torch.testing.assert_close(found[1], torch.tensor(json.loads(out)["weights"]))
    assert not torch.allclose(found[0], found[1])


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["caption", "RUN", "IMAGE", "--beam", 3, "--top-k", 5], "got beam=3 and top_k=5; leave one out"),
        (["caption", "RUN", "IMAGE", "--n-best", 6], "n_best must be between 1 and beam 5, got 6"),
        (["caption", "RUN", "IMAGE", "IMAGE", "--out", "a.png"], "one figure shows one input, got 2"),
        (["caption", "RUN", "IMAGE", "--out", "a.png", "--head", 6], "head must be between 0 and 5"),
        (["caption", "RUN", "IMAGE", "--head", 1], "--head 1 is what a figure shows, and none is drawn"),
        (["look", "RUN", "IMAGE", "--layer", 2], "layer must be between 0 and 1"),
        (["look", "RUN", "IMAGE", "--layer", "dance"], "matches 'dance'; it has decoder.layers.layers.0"),
        (["evaluate", "RUN", "--split", "dev"], "'dev'"),
        (["caption", "RUN", "none.png"], "there is no image 'none.png'"),
    ],
)
def test_bad_arguments(place, tmp_path, monkeypatch, capsys, args, words):
    monkeypatch.chdir(tmp_path)
    names = {"RUN": place / "run", "IMAGE": place / "data" / "0.png"}
    code, out, err = run(capsys, *[names.get(arg, arg) for arg in args])
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())
