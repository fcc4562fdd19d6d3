"""``train translate`` and ``translate`` as they are typed."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

from sightline.data.tokens import EOS
from sightline.models.manifest import drop_manifest
from sightline.models.run_folder import read_config

pytestmark = pytest.mark.plain

CPU = ["--device", "cpu"]


def test_training_leaves_a_run_that_says_what_it_is(folder):
    config = read_config(folder)
    assert config["kind"] == "translate"
    assert config["model"]["architecture"] == folder.name
    assert config["data"]["tokens"] == "char"
    assert (folder / "metrics.csv").exists()


def test_a_training_ends_with_a_sentence_to_try(command, tmp_path, train_dates):
    out = train_dates("recurrent", tmp_path / "run")
    ended = command("train", "translate", "--out", out, "--resume", *CPU)
    last = ended.err.splitlines()[-1]
    assert f"look {out} " in last
    text = last.partition(f"look {out} ")[2].strip("'")
    assert command("look", out, text, *CPU).code == 0


def test_texts_are_translated_from_arguments_and_from_standard_input(folder, command):
    ended = command("translate", folder, "3 mai 1979", "4 mai 1980", *CPU)
    assert (ended.code, len(ended.out.splitlines())) == (0, 2)
    (one,) = json.loads(command("translate", folder, "-", "--json", *CPU, stdin="3 mai 1979\n\n").out)[
        "translations"
    ]
    assert list(one) == ["source", "translation", "score"]
    assert one["source"] == "3 mai 1979"
    rows = json.loads(
        command(
            "translate", folder, "-", "--unknown", "--json", *CPU, stdin="3 mai 1979\r\n4 mai\u20281980\n"
        ).out
    )["translations"]
    assert [row["source"] for row in rows] == ["3 mai 1979", "4 mai\u20281980"]


@pytest.mark.bad_input
def test_a_refused_sentence_costs_itself_alone(folder, command, tmp_path):
    texts = ["3 mai 1979", "3 漢 1979", "4 mai 1980"]
    ended = command("translate", folder, *texts, *CPU)
    good = command("translate", folder, texts[0], texts[2], *CPU)
    first, third = good.out.splitlines()
    assert ended.code == 1
    assert ended.out.splitlines() == [first, "", third], "line n is that of text n"
    (told,) = ended.err.splitlines()
    assert told.startswith("left out text 2 of 3: the vocabulary has no token for the character '漢'")
    ended = command("translate", folder, *texts, "--json", "--out", tmp_path / "all", *CPU)
    assert [row["source"] for row in json.loads(ended.out)["translations"]] == [texts[0], texts[2]]
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["1.png", "3.png"]


@pytest.mark.bad_input
def test_where_nothing_is_left_the_command_fails(folder, command):
    ended = command("translate", folder, "-", *CPU, stdin="3 漢 1979\n\n4 漢 1979\n")
    assert ended.code == 2
    assert [line[:22] for line in ended.err.splitlines()] == [
        f"left out text {i} of 3: "[:22] for i in (1, 2, 3)
    ]


def test_a_text_beyond_the_training_is_translated_with_a_note(folder, command):
    ended = command("translate", folder, "1 " * 90, *CPU)
    assert (ended.code, len(ended.out.splitlines())) == (0, 1)
    assert "1 of 1 sentences have more than the 64 tokens of the training, up to 181" in ended.err


@pytest.mark.bad_input
def test_learned_positions_end_where_their_table_does(command, tmp_path, train_dates):
    out = train_dates("transformer", tmp_path / "run", "--positions", "learned")
    ended = command("translate", out, "1 " * 90, *CPU)
    assert ended.code == 2
    assert "learned positions end at 64 tokens, got 181 in '1 1 1" in ended.err


@pytest.mark.parametrize("name", ["figure.png", "page.html"])
def test_alignments_are_drawn(folder, command, name, tmp_path):
    ended = command("translate", folder, "3 mai 1979", "--out", tmp_path / name, *CPU)
    assert (ended.code, ended.err.strip()) == (0, str(tmp_path / name))
    assert (tmp_path / name).stat().st_size > 5000


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["translate", "RUN", "3 漢 1979"], "has no token for the character '漢'"),
        (["translate", "RUN", " "], "something to translate, got ' '"),
        (["translate", "RUN", "3", "--beam", "0"], "beam must be at least 1, got 0"),
        (["translate", "RUN", "3", "--out", "x.doc"], "got 'x.doc'"),
        (["translate", "RUN", "3", "4", "--out", "x.png"], "one input, got 2"),
        (["translate", "RUN", "3", "--head", "1"], "--head 1 is what a figure shows, and none is drawn"),
        (["look", "RUN", "3 mai 1979", "--layer", "seventh"], "matches 'seventh'; it has encoder.layers.0"),
        (["look", "RUN", "3 mai 1979", "--head", "9"], "got 9"),
        (["evaluate", "RUN", "--split", "tset"], "no split 'tset'"),
        (["train", "--data", "dates", "--score", "dott"], "unknown score 'dott'"),
        (["train", "--data", "dates", "--model", "rnn"], "unknown model 'rnn'"),
        (["train", "--data", "dates", "--metric", "blue"], "unknown metric 'blue'"),
        (["train"], "a training needs data; add --data with a folder, a zip or 'dates'"),
        (["train", "--data", "nowhere"], "nowhere"),
        (["train", "--data", "dates", "--source", "de"], "from 'date' to 'iso', got the source 'de'"),
        (
            ["train", "--data", "dates", "--model", "recurrent", "--n-heads", "2"],
            "--n-heads is no setting of the recurrent model",
        ),
        (
            ["train", "--data", "dates", "--model", "transformer", "--d-attn", "2"],
            "--d-attn is no setting of the transformer model",
        ),
    ],
)
def test_what_is_wrong_is_answered_with_a_sentence(folders, command, arguments, sentence, tmp_path):
    if arguments[0] == "train":
        arguments = ["train", "translate", *arguments[1:], "--out", tmp_path / "new"]
    ended = command(*(folders["transformer"] if word == "RUN" else word for word in arguments))
    assert ended.code == 2
    assert sentence in ended.err
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "new").exists(), "nothing was begun"


@pytest.mark.bad_input
@pytest.mark.parametrize(("name", "file"), [("translate", "x.png"), ("look", "x.png"), ("look", "x.html")])
def test_a_translation_without_words_has_nothing_to_draw(folders, command, name, file, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(folders["recurrent"], copy)
    weights = load_file(copy / "model.safetensors")
    weights["bias"][EOS] += 90.0
    save_file(weights, copy / "model.safetensors")
    drop_manifest(copy)
    ended = command(name, copy, "3 mai 1979", "--out", tmp_path / file, *CPU)
    assert ended.code == 2
    assert "there is nothing to draw; train longer" in ended.err
    assert not (tmp_path / file).exists()


@pytest.mark.bad_input
def test_a_run_goes_on_in_its_own_language(command, tmp_path):
    for split, n in (("train", 5), ("val", 2), ("test", 2)):
        for language in ("en", "de", "fr"):
            lines = "".join(f"{language} {split} {i}\n" for i in range(n))
            (tmp_path / f"{split}.{language}").write_text(lines)
    common = ["train", "translate", "--out", tmp_path / "run", *CPU]
    asked = ["--data", tmp_path, "--source", "en", "--target", "de", "--tokens", "char", "--epochs", "1"]
    width = ["--d-model", "8", "--n-heads", "2", "--d-ff", "12"]
    assert command(*common, *asked, "--no-tensorboard", *width).code == 0
    ended = command(*common, "--resume", "--source", "fr")
    assert ended.code == 2
    assert "source was 'en' in" in ended.err
