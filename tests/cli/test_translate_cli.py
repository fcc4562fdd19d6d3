import io
import json

import pytest

from sightline.cli import main
from sightline.models.saved import read_config

SMALL = ["--n-train", "60", "--n-val", "7", "--n-test", "11", "--epochs", "1", "--no-tensorboard"]
RECURRENT = ["--d-model", "8", "--d-attn", "6"]
TRANSFORMER = ["--d-model", "8", "--n-heads", "2", "--d-ff", "12"]


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translate")
    made = {}
    for model, size in (("recurrent", RECURRENT), ("transformer", TRANSFORMER)):
        made[model] = folder / model
        common = ["--data", "dates", "--model", model, "--out", made[model], "--device", "cpu"]
        assert run("train", "translate", *common, *SMALL, *size) == 0
    return made


@pytest.fixture(params=["recurrent", "transformer"])
def made(request, runs):
    return runs[request.param]


def test_training_leaves_a_run_that_says_what_it_is(made):
    config = read_config(made)
    assert config["kind"] == "translate"
    assert config["model"]["architecture"] == made.name
    assert config["data"]["tokens"] == "char"
    assert (made / "metrics.csv").exists()


def test_evaluation_prints_one_object_with_the_promised_names(made, capsys):
    assert run("evaluate", made, "--json", "--beam", 2, "--device", "cpu") == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"bleu", "chrf", "exact_match", "alignment_accuracy"}
    assert all(0 <= value <= 100 for value in found.values())


def test_texts_are_translated_from_arguments_and_from_standard_input(made, capsys, monkeypatch):
    assert run("translate", made, "3 mai 1979", "4 mai 1980", "--device", "cpu") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("3 mai 1979\n\n"))
    assert run("translate", made, "-", "--json", "--device", "cpu") == 0
    (one,) = json.loads(capsys.readouterr().out)["translations"]
    assert one["source"] == "3 mai 1979"


@pytest.mark.parametrize("name", ["figure.png", "page.html"])
def test_alignments_are_drawn(made, name, tmp_path):
    assert run("translate", made, "3 mai 1979", "--out", tmp_path / name, "--device", "cpu") == 0
    assert (tmp_path / name).stat().st_size > 5000


def test_several_alignments_go_to_a_folder(runs, tmp_path):
    made = runs["recurrent"]
    assert (
        run("translate", made, "3 mai 1979", "4 mai 1980", "--out", tmp_path / "all", "--device", "cpu") == 0
    )
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["1.png", "2.png"]


def test_a_look_tells_every_layer(made, capsys, tmp_path):
    assert run("look", made, "3 mai 1979", "--json", "--device", "cpu") == 0
    found = json.loads(capsys.readouterr().out)
    if made.name == "recurrent":
        assert list(found["layers"]) == ["attention"]
    else:
        assert "encoder.layers.1.self_attn" in found["layers"]
        weights = found["layers"]["decoder.layers.0.multihead_attn"]
        assert len(weights) == 2
        assert sum(weights[0][0]) == pytest.approx(1)
        causal = found["layers"]["decoder.layers.0.self_attn"][0]
        assert causal[0][1:] == [0] * (len(causal) - 1)
    assert run("look", made, "3 mai 1979", "--device", "cpu") == 0
    assert "looked at" in capsys.readouterr().out


@pytest.mark.parametrize("layer", ["1", "encoder.layers.0"])
def test_a_layer_is_drawn_by_number_or_name(runs, layer, tmp_path):
    out = tmp_path / "layer.png"
    assert (
        run("look", runs["transformer"], "3 mai 1979", "--layer", layer, "--out", out, "--device", "cpu") == 0
    )
    assert out.stat().st_size > 5000


def test_pairs_are_checked(tmp_path, capsys):
    (tmp_path / "train.en").write_text("a dog\nsame\n")
    (tmp_path / "train.de").write_text("ein Hund\nsame\n")
    assert run("data", "check", tmp_path, "--source", "en") == 0
    shown = capsys.readouterr().out
    assert "en to de" in shown
    assert "1 pairs have the same text on both sides" in shown
    assert run("data", "check", tmp_path, "--source", "en", "--json") == 0
    assert json.loads(capsys.readouterr().out)["splits"]["train"]["pairs"] == 2


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["translate", "RUN", "3 漢 1979"], "never saw the character '漢'"),
        (["translate", "RUN", " "], "something to translate, got ' '"),
        (["translate", "RUN", "1 " * 90], "reads at most 64 tokens, got 181"),
        (["translate", "RUN", "3", "--beam", "0"], "--beam must be at least 1, got 0"),
        (["translate", "RUN", "3", "--out", "x.doc"], "got 'x.doc'"),
        (["translate", "RUN", "3", "4", "--out", "x.png"], "one sentence, got 2"),
        (["translate", "nowhere", "3"], "'nowhere' does not exist"),
        (["look", "RUN", "3 mai 1979", "--layer", "seventh"], "matches 'seventh'; it has"),
        (["look", "RUN", "3 mai 1979", "--head", "9"], "got 9"),
        (["evaluate", "RUN", "--split", "tset"], "no split 'tset'"),
        (["evaluate", "RUN", "--data", "nowhere"], "'nowhere' does not exist"),
        (
            ["train", "translate", "--data", "dates", "--out", "NEW", "--score", "dott"],
            "unknown score 'dott'",
        ),
        (["train", "translate", "--data", "dates", "--out", "NEW", "--model", "rnn"], "unknown model 'rnn'"),
        (["train", "translate", "--out", "NEW"], "a training needs data"),
        (["train", "translate", "--data", "nowhere", "--out", "NEW"], "nothing at 'nowhere'"),
        (
            [
                "train",
                "translate",
                "--data",
                "dates",
                "--model",
                "recurrent",
                "--n-heads",
                "2",
                "--out",
                "NEW",
            ],
            "--n-heads is no setting of the recurrent model",
        ),
        (["caption", "RUN", "x.png"], "'translate'"),
    ],
)
def test_what_is_wrong_is_answered_with_a_sentence(runs, arguments, sentence, tmp_path, capsys):
    places = {"RUN": runs["transformer"], "NEW": tmp_path / "new"}
    assert run(*(places.get(argument, argument) for argument in arguments)) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.bad_input
def test_a_run_of_another_kind_is_refused(runs, tmp_path, capsys):
    config = json.loads((runs["recurrent"] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"kind": "caption"}))
    assert run("translate", tmp_path, "3 mai 1979") == 2
    assert "is of kind 'caption'" in capsys.readouterr().err


@pytest.mark.bad_input
def test_unknown_letters_can_be_read_as_such(runs, capsys):
    assert run("translate", runs["recurrent"], "3 漢 1979", "--unknown", "--device", "cpu") == 0
    assert capsys.readouterr().out
