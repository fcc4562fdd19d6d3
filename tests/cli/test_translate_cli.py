import io
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from sightline.data.tokens import EOS
from sightline.models.run_folder import read_config
from sightline.show.alignment import alignment, arcs, head_grid
from sightline.tasks.translate.generate import translate
from tests.cli.translate_runs import SMALL, TRANSFORMER, make_runs, run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp("translate"))


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
    assert "identical (1): pairs with the same text on both sides" in shown
    assert run("data", "check", tmp_path, "--source", "en", "--json") == 0
    assert json.loads(capsys.readouterr().out)["splits"]["train"]["pairs"] == 2


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["translate", "RUN", "3 漢 1979"], "has no token for the character '漢'"),
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
        (
            ["train", "translate", "--data", "dates", "--out", "NEW", "--metric", "blue"],
            "unknown metric 'blue'",
        ),
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
    assert not (tmp_path / "new").exists(), "nothing was begun"


@pytest.mark.bad_input
def test_a_run_of_another_kind_is_refused(runs, tmp_path, capsys):
    config = json.loads((runs["recurrent"] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"kind": "caption"}))
    assert run("translate", tmp_path, "3 mai 1979") == 2
    assert "is of kind 'caption'" in capsys.readouterr().err


def test_the_search_is_the_one_that_was_asked_for(made, tmp_path, monkeypatch):
    copy = tmp_path / "run"
    shutil.copytree(made, copy)
    config = json.loads((copy / "config.json").read_text())
    config["data"]["length_penalty"] = 0.3
    (copy / "config.json").write_text(json.dumps(config))
    asked = []

    def spy(model, tokens, texts, **wishes):
        asked.append((len(texts), wishes["width"], wishes["alpha"]))
        return translate(model, tokens, texts, **wishes)

    monkeypatch.setattr("sightline.cli.translate_run.translate", spy)
    assert run("evaluate", copy, "--beam", 2, "--most", 3, "--device", "cpu") == 0
    assert run("translate", copy, "3 mai 1979", "--beam", 4, "--device", "cpu") == 0
    assert run("look", copy, "3 mai 1979", "--beam", 3, "--device", "cpu") == 0
    assert asked == [(3, 2, 0.3), (1, 4, 0.3), (1, 3, 0.3)]


def test_what_is_drawn_is_what_the_model_looked_at(runs, tmp_path, monkeypatch, capsys):
    made, drawn = runs["transformer"], []

    def spy(draw):
        return lambda weights, *words, **title: (
            drawn.append((weights, words)) or draw(weights, *words, **title)
        )

    assert run("look", made, "3 mai 1979", "--json", "--device", "cpu") == 0
    found = json.loads(capsys.readouterr().out)
    monkeypatch.setattr("sightline.cli.translate_layers.alignment", spy(alignment))
    assert (
        run("translate", made, "3 mai 1979", "--head", 3, "--out", tmp_path / "x.png", "--device", "cpu") == 0
    )
    (weights, words) = drawn.pop()
    assert words == (found["read"], found["written"])  # the limit ended it, so there is no step after
    last = torch.tensor(found["layers"]["decoder.layers.1.multihead_attn"])
    torch.testing.assert_close(weights, last[1])
    monkeypatch.setattr("sightline.cli.look_translate.arcs", spy(arcs))
    monkeypatch.setattr("sightline.cli.translate_layers.head_grid", spy(head_grid))
    assert run("look", made, "3 mai 1979", "--out", tmp_path / "x.html", "--device", "cpu") == 0
    ways = torch.tensor(found["layers"]["encoder.layers.0.self_attn"])
    assert drawn.pop(0)[1] == (found["read"], found["written"])
    torch.testing.assert_close(drawn[0][0], ways.mean(0))
    assert drawn[0][1] == (found["read"],)
    read, written = found["read"], found["written"]
    begun = ["<bos>", *written[:-1]]
    assert [words for _, words in drawn if len(words) == 2] == [
        *[(read, read)] * 2,
        *[(begun, begun), (written, read)] * 2,
    ]


def test_a_split_of_dates_by_the_beginning_of_its_name(made, capsys):
    scores = []
    for split in ("test", "te"):
        assert run("evaluate", made, "--split", split, "--most", 5, "--json", "--device", "cpu") == 0
        scores.append(json.loads(capsys.readouterr().out))
    assert scores[0] == scores[1]


def test_a_folder_called_dates_is_not_the_embedded_set(made, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dates").mkdir()
    (tmp_path / "dates" / "test.a").write_text("3 mai 1979\n")
    (tmp_path / "dates" / "test.b").write_text("1979-05-03\n")
    named = ["--source", "a", "--target", "b"]
    assert run("evaluate", made, "--data", "./dates", *named, "--json", "--device", "cpu") == 0
    assert set(json.loads(capsys.readouterr().out)) == {"bleu", "chrf"}


@pytest.mark.bad_input
def test_a_source_that_is_too_long_is_named_by_an_evaluation(made, capsys, tmp_path):
    (tmp_path / "test.a").write_text("3 mai 1979\n" + "1 " * 90 + "\n")
    (tmp_path / "test.b").write_text("1979-05-03\nx\n")
    named = ["--source", "a", "--target", "b"]
    assert run("evaluate", made, "--data", tmp_path, *named, "--device", "cpu") == 2
    assert "reads at most 64 tokens, got 181 in '1 1 1" in capsys.readouterr().err


@pytest.mark.bad_input
def test_lines_of_standard_input_are_not_skipped(made, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("3 mai 1979\n\n4 mai 1980\n"))
    assert run("translate", made, "-", "--device", "cpu") == 2
    assert "got '' on line 2" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("3 mai 1979\r\n4 mai\u20281980\n"))
    assert run("translate", made, "-", "--device", "cpu") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.bad_input
@pytest.mark.parametrize("command", ["translate", "look"])
def test_bytes_that_are_no_text_are_told(made, command, capsys):
    assert run(command, made, "3 m\udce4i 1979", "--device", "cpu") == 2
    assert "must be UTF-8, got the byte 0xe4" in capsys.readouterr().err


@pytest.mark.bad_input
def test_a_look_offers_no_option_that_it_has_not(made, capsys):
    assert run("look", made, "3 漢 1979", "--device", "cpu") == 2
    told = capsys.readouterr().err
    assert "has no token for the character '漢'" in told
    assert "--unknown" not in told


def ending(runs, tmp_path, bias):
    """The recurrent run, its end likelier or less likely."""
    shutil.copytree(runs["recurrent"], tmp_path / "run")
    weights = load_file(tmp_path / "run" / "model.safetensors")
    weights["bias"][EOS] += bias
    save_file(weights, tmp_path / "run" / "model.safetensors")
    return tmp_path / "run"


@pytest.mark.bad_input
@pytest.mark.parametrize("command", ["translate", "look"])
@pytest.mark.parametrize("name", ["x.png", "x.html"])
def test_a_translation_without_words_has_nothing_to_draw(runs, command, name, tmp_path, capsys):
    made = ending(runs, tmp_path, 90.0)
    assert run(command, made, "3 mai 1979", "--out", tmp_path / name, "--device", "cpu") == 2
    assert "'3 mai 1979' was translated to no word" in capsys.readouterr().err
    assert not (tmp_path / name).exists()


def test_a_translation_as_long_as_the_model_takes_can_be_looked_at(tmp_path, capsys):
    common = ["--data", "dates", "--model", "transformer", "--positions", "learned", "--device", "cpu"]
    assert run("train", "translate", *common, *SMALL, *TRANSFORMER, "--out", tmp_path / "run") == 0
    weights = load_file(tmp_path / "run" / "model.safetensors")
    weights["decoder.norm.weight"].zero_()
    weights["decoder.norm.bias"].fill_(1.0)
    weights["embedding.weight"].zero_()[EOS + 3] = 1.0  # it never ends
    save_file(weights, tmp_path / "run" / "model.safetensors")
    capsys.readouterr()
    assert run("look", tmp_path / "run", "1 " * 30, "--json", "--device", "cpu") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["written"]) == 64
    rows = found["layers"]["decoder.layers.0.multihead_attn"][0]
    assert len(rows) == 64


def test_the_embedded_set_is_checked(capsys):
    assert run("data", "check", "dates") == 0
    assert "date to iso" in capsys.readouterr().out


@pytest.mark.bad_input
def test_unknown_letters_can_be_read_as_such(runs, capsys):
    assert run("translate", runs["recurrent"], "3 漢 1979", "--unknown", "--device", "cpu") == 0
    assert capsys.readouterr().out


@pytest.mark.bad_input
def test_a_run_goes_on_in_its_own_language(tmp_path, capsys):
    for split, n in (("train", 5), ("val", 2), ("test", 2)):
        for language in ("en", "de", "fr"):
            lines = "".join(f"{language} {split} {i}\n" for i in range(n))
            (tmp_path / f"{split}.{language}").write_text(lines)
    common = ["train", "translate", "--out", tmp_path / "run", "--device", "cpu"]
    asked = ["--data", tmp_path, "--source", "en", "--target", "de", "--tokens", "char", "--epochs", "1"]
    assert run(*common, *asked, "--no-tensorboard", *TRANSFORMER) == 0
    capsys.readouterr()
    assert run(*common, "--resume", "--source", "fr") == 2
    assert "source was 'en' in" in capsys.readouterr().err
