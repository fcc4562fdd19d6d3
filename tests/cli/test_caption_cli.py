"""``sightline evaluate``, ``caption`` and ``look`` on a caption run of random weights."""

import json
import re
import shutil
import warnings

import matplotlib.image
import pytest
import torch
from PIL import Image
from sightline.cli.caption_run import open_run
from sightline.cli.evaluate_caption import Answers, _boxes
from sightline.cli.runs import chosen_device

from sightline.data.captions import read_captions
from sightline.data.images import read_image
from sightline.data.scenes import Scenes
from sightline.data.tokens import BOS, PAD, UNK, Tokenizer
from sightline.decode.search import Hypotheses, beam, greedy
from sightline.evaluate.captions import score
from sightline.models.captioner import Captioner
from sightline.tasks.caption.generate import Said, _whole, say
from tests.cli.caption_runs import LINES, make_data, make_run, run

pytest.importorskip("pycocoevalcap")
SCORES = ["bleu1", "bleu2", "bleu3", "bleu4", "rouge_l", "cider"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions")
    make_data(folder / "data")
    make_run(folder / "run", folder / "data")
    make_run(folder / "recurrent", folder / "data", decoder="recurrent", d_hidden=13)
    make_run(folder / "layers", folder / "data", look_layer=None)
    return folder


def spoken(place, name="run", **options):
    """What the model says of the five pictures, asked directly."""
    model, tokenizer = Captioner.load(place / name), Tokenizer.load(place / name / "tokenizer.json")
    images = torch.stack([read_image(place / "data" / f"{i}.png", size=24) for i in range(5)])
    return [ranks[0] for ranks in say(model, tokenizer, images, **options)]


def test_say_is_the_search_and_the_look(place):
    model, tokenizer = Captioner.load(place / "run"), Tokenizer.load(place / "run" / "tokenizer.json")
    images = torch.stack([read_image(place / "data" / f"{i}.png", size=24) for i in range(5)])
    floats = images / 127.5 - 1
    said = [ranks[0] for ranks in say(model, tokenizer, images, beam=3, look=True, batch_size=2)]
    found = beam(model, model.start(floats, look=True), width=3, max_length=7, forbidden=(0, 1, 3))
    assert [one.text for one in said] == found.texts(tokenizer)
    for i, one in enumerate(said):
        assert one.weights.shape == (len(one.words), 3, 9)
        torch.testing.assert_close(one.weights, found.attention_weights[i, 0, : len(one.words)])
        torch.testing.assert_close(one.weights.sum(-1), torch.ones(len(one.words), 3))
    alone = greedy(model, model.start(floats), max_length=7, forbidden=(0, 1, 3))
    assert [one.text for one in spoken(place, beam=1)] == alone.texts(tokenizer)


def test_pieces_of_a_word_are_put_together():
    pieces = ["▁a", "▁stri", "ped", "▁ri", "ng", "s"]
    attention_weights = torch.rand(2, 3, 7, 5, 11)
    found = Hypotheses(
        torch.zeros(2, 3, 7, dtype=torch.long),
        torch.ones(2, 3, dtype=torch.long),
        torch.zeros(2, 3),
        attention_weights,
    )
    words, weights = _whole(pieces, found, 1, 2)
    assert words == ("a", "striped", "rings")
    looked = attention_weights[1, 2]
    expected = torch.stack([looked[0], looked[1:3].mean(0), looked[3:6].mean(0)])
    torch.testing.assert_close(weights, expected)
    assert _whole([], found, 0, 0)[1].shape == (0, 5, 11)
    words, weights = _whole(["ped", "▁a"], found, 0, 0)
    assert words == ("ped", "a")
    words, weights = _whole(["two", "plain", "words"], found, 0, 0)
    assert words == ("two", "plain", "words")
    torch.testing.assert_close(weights, attention_weights[0, 0, :3])


def test_an_unknown_word_is_never_said(place):
    model, tokenizer = Captioner.load(place / "run"), Tokenizer.load(place / "run" / "tokenizer.json")
    with torch.no_grad():
        model.decoder.bias[[PAD, BOS, UNK]] = 100.0
    images = torch.zeros(1, 3, 24, 24, dtype=torch.uint8)
    said = next(say(model, tokenizer, images))[0]
    assert said.words
    assert not set(said.words) & set(tokenizer.words([PAD, BOS, UNK]))


@pytest.mark.parametrize("name", ["run", "recurrent"])
def test_evaluate_prints_the_promised_keys_and_nothing_else(place, capsys, name):
    code, out, err = run(capsys, "evaluate", place / name, "--json", "--beam", 2)
    assert code == 0
    found = json.loads(out)
    assert list(found) == SCORES
    expected = score(
        [one.text for one in spoken(place, name, beam=2)],
        [r.captions for r in read_captions(place / "data").split("test")],
    )
    assert found == pytest.approx(expected)
    assert "5 images of split 'test'" in err
    assert "cider|images:5|refs:2|tok:sightline.clean" in err


def test_evaluate_prints_a_table(place, capsys):
    code, out, err = run(capsys, "evaluate", place / "run", "--most", 3)
    assert (code, err) == (0, "")
    first, header, *rows = out.splitlines()
    assert first.startswith("3 images of split 'test' of ")
    assert header.split()[:2] == ["score", "value"]
    assert [row.split()[0] for row in rows] == SCORES


def test_evaluate_writes_scores_captions_and_a_gallery(place, tmp_path, capsys):
    code, out, _ = run(capsys, "evaluate", place / "run", "--out", tmp_path / "new", "--json")
    assert code == 0
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == [
        "captions.json",
        "gallery.html",
        "scores.json",
    ]
    kept = json.loads((tmp_path / "new" / "scores.json").read_text())
    assert kept["scores"] == json.loads(out)
    captions = json.loads((tmp_path / "new" / "captions.json").read_text())
    assert [c["caption"] for c in captions] == [one.text for one in spoken(place)]
    page = (tmp_path / "new" / "gallery.html").read_text()
    assert page.count("<figure") == 5
    assert "<b>" not in page
    assert not re.search(r"(src|href)=\"(?!data:)", page)


def test_evaluate_other_data_and_all_splits(place, tmp_path, capsys):
    make_data(tmp_path / "other", n=3)
    code, _, err = run(
        capsys, "evaluate", place / "run", "--data", tmp_path / "other", "--split", "all", "--json"
    )
    assert code == 0
    assert "3 images of split 'all'" in err


def test_broken_images_are_named_and_left_out(place, tmp_path, capsys):
    other = make_data(tmp_path / "other", n=3)
    (other / "1.png").write_text("no picture")
    code, _, err = run(capsys, "evaluate", place / "run", "--data", other, "--json")
    assert code == 0
    assert "1.png' is not an image that can be read; it is text; it is left out" in err
    assert "2 images of split 'test'" in err


def test_a_piece_of_nothing_but_broken_images_is_left_out(place, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sightline.cli.evaluate_caption._READ", 2)
    shutil.copytree(place / "data", tmp_path / "data")
    (tmp_path / "data" / "4.png").write_text("this is a text")  # the last piece has no other
    args = ("--data", tmp_path / "data", "--json")
    code, out, err = run(capsys, "evaluate", place / "run", *args)
    assert code == 0
    assert "'4.png' is not an image" in err
    assert "images:4|" in err
    assert list(json.loads(out)) == SCORES
    for i in range(4):
        (tmp_path / "data" / f"{i}.png").write_text("this is a text")
    code, out, err = run(capsys, "evaluate", place / "run", *args)
    assert (code, out) == (2, "")
    assert "not one of 5 images" in err


def test_boxes_are_in_pixels_of_what_the_model_saw(place):
    scenes = Scenes(1, seed=0, split="test")
    words = scenes.captions(0)[0].lower().strip(".").split()
    said = Said(" ".join(words), tuple(words), torch.full((len(words), 1, 9), 1 / 9), 0.0)
    tested = Answers([], [said], None, [scenes.scene(0)])
    boxes = _boxes(open_run(place / "run", torch.device("cpu")), tested, 0)
    assert boxes
    assert set(boxes.values()) <= {
        tuple(side * 24 / 64 for side in thing.box) for thing in scenes.scene(0).objects
    }


def test_caption_prints_a_line_for_each_picture(place, capsys):
    images = [place / "data" / f"{i}.png" for i in range(5)]
    code, out, err = run(capsys, "caption", place / "run", *images)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"{path}: {one.text}" for path, one in zip(images, spoken(place), strict=True)
    ]


def test_caption_as_json_with_several_each(place, capsys):
    image = place / "data" / "3.png"
    _, out, _ = run(capsys, "caption", place / "run", image, "--json", "--n-best", 3, "--beam", 4)
    (found,) = json.loads(out)["captions"]
    assert found["image"] == str(image)
    scores = [one["score"] for one in found["n_best"]]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert found["caption"] == found["n_best"][0]["caption"]


def test_caption_draws_figures_pages_and_folders(place, tmp_path, capsys):
    images = [place / "data" / f"{i}.png" for i in range(2)]
    assert (
        run(capsys, "caption", place / "run", images[0], "--out", tmp_path / "one.png", "--head", 1)[0] == 0
    )
    assert matplotlib.image.imread(tmp_path / "one.png").ndim == 3
    _, out, _ = run(capsys, "caption", place / "run", *images, "--out", tmp_path / "many")
    assert out.splitlines()[2:] == [str(tmp_path / "many" / f"{i}.png") for i in range(2)]
    assert all((tmp_path / "many" / f"{i}.png").stat().st_size > 1000 for i in range(2))
    run(capsys, "caption", place / "run", *images, "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().count("<figure") == 2


def test_look_prints_where_each_word_looked(place, capsys):
    code, out, err = run(capsys, "look", place / "run", place / "data" / "0.png")
    one = spoken(place, look=True)[0]
    assert (code, err) == (0, "")
    text, _, *rows, _ = out.splitlines()
    assert text == one.text
    assert [row.split()[0] for row in rows] == list(one.words)
    for row, weights in zip(rows, one.weights.mean(1), strict=True):
        _, largest, line, column, _ = row.split()
        assert float(largest) == pytest.approx(float(weights.max()), abs=1e-3)
        assert 3 * int(line) + int(column) == int(weights.argmax())


def test_look_as_json_chooses_a_layer(place, capsys):
    found = {}
    for layer in (0, 1):
        _, out, _ = run(capsys, "look", place / "run", place / "data" / "0.png", "--json", "--layer", layer)
        found[layer] = json.loads(out)
    assert found[0]["words"] == found[1]["words"]
    last = spoken(place, look=True)[0].weights
    torch.testing.assert_close(torch.tensor(found[1]["weights"]), last)
    assert not torch.allclose(torch.tensor(found[0]["weights"]), last)


def test_look_shows_the_heads_of_all_layers_one_after_the_other(place, capsys, tmp_path):
    def looked(*more):
        _, out, _ = run(capsys, "look", place / "layers", place / "data" / "0.png", "--json", *more)
        return torch.tensor(json.loads(out)["weights"])

    layers = [looked("--layer", layer) for layer in (0, 1)]
    torch.testing.assert_close(looked(), torch.cat(layers, dim=1))
    page = tmp_path / "page.html"
    for more, words in (((), "heads: 6, 3 of each layer."), (("--layer", 1), "heads: 3.")):
        run(capsys, "look", place / "layers", place / "data" / "0.png", "--out", page, *more)
        assert words in page.read_text()


@pytest.mark.parametrize("name", ["run", "recurrent"])
def test_look_writes_a_page_and_a_figure(place, tmp_path, capsys, name):
    page, figure = tmp_path / "new" / "page.html", tmp_path / "figure.png"
    assert run(capsys, "look", place / name, place / "data" / "0.png", "--out", page)[0] == 0
    text = page.read_text()
    assert not re.search(r"(src|href)=\"(?!data:)|<link|https?://", text)
    assert text.count("<figure") == 1
    code, out, _ = run(capsys, "look", place / name, place / "data" / "0.png", "--out", figure, "--head", 0)
    assert code == 0
    assert out.endswith(f"{figure}\n")
    assert matplotlib.image.imread(figure).ndim == 3


def damaged(place, tmp_path, name, content):
    copy = tmp_path / "copy"
    shutil.copytree(place / "run", copy)
    if content is None:
        (copy / name).unlink()
    else:
        (copy / name).write_bytes(content)
    return copy


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["evaluate", "RUN", "--beam", 0], "--beam must be at least 1, got 0"),
        (["evaluate", "RUN", "--batch-size", 0], "--batch-size must be at least 1, got 0"),
        (["evaluate", "RUN", "--most", -1], "--most must be at least 1, got -1"),
        (["evaluate", "RUN", "--split", "dev"], "no image in the split 'dev'"),
        (["evaluate", "nowhere"], "'nowhere' does not exist"),
        (["evaluate", __file__], "test_caption_cli.py' is a file"),
        (
            ["evaluate", "RUN", "--data", "gone"],
            "--data must be a folder, a zip or 'scenes', 'gone' does not",
        ),
        (["evaluate", "RUN", "--device", "gpu"], "there is no device 'gpu' here; did you mean 'cuda'?"),
        (
            ["look", "RUN", "IMAGE", "--device", "GPU:1"],
            "there is no device 'GPU:1' here; did you mean 'cuda:1'?",
        ),
        (["evaluate", "RUN", "--device", "abacus"], "there is no device 'abacus' here: "),
        (["evaluate", "RUN", "--out", __file__], "--out must be a folder"),
        (["caption", "RUN", "none.png"], "there is no image 'none.png'"),
        (["caption", "RUN", __file__], "test_caption_cli.py' is not an image that can be read; it is text"),
        (["caption", "RUN", "DATA"], "is a folder; try"),
        (["caption", "RUN", "IMAGE", "--beam", 0], "--beam must be at least 1, got 0"),
        (["caption", "RUN", "IMAGE", "--n-best", 6], "--n-best must be between 1 and --beam 5, got 6"),
        (["caption", "RUN", "IMAGE", "IMAGE", "--out", "a.png"], "one figure shows one image, got 2"),
        (["caption", "RUN", "IMAGE", "--out", "a.doc"], "--out must end in .html for a page"),
        (["caption", "RUN", "IMAGE", "--out", "a.png", "--head", 3], "head must be between 0 and 2"),
        (["look", "RUN", "none.png"], "there is no image 'none.png'"),
        (["look", "RUN", "IMAGE", "--layer", 2], "--layer must be a number between 0 and 1"),
        (["look", "RUN", "IMAGE", "--layer", "*"], "the layers of the decoder, got '*'"),
        (["look", "RUN", "IMAGE", "--head", 7], "head must be between 0 and 2, the heads that looked, got 7"),
        (["look", "RUN", "IMAGE", "--beam", 0], "--beam must be at least 1, got 0"),
    ],
)
def test_bad_arguments(place, tmp_path, monkeypatch, capsys, args, words):
    monkeypatch.chdir(tmp_path)
    named = {"RUN": place / "run", "DATA": place / "data", "IMAGE": place / "data" / "0.png"}
    code, out, err = run(capsys, *[named.get(arg, arg) for arg in args])
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.bad_input
@pytest.mark.parametrize("command", ["evaluate", "caption"])
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", None, "has none; `sightline train` makes one"),
        ("config.json", b"{", "is not JSON"),
        ("config.json", b'{"kind": "dance", "model": {}}', "is of kind 'dance'"),
        ("tokenizer.json", None, "there is no tokenizer.json"),
        ("model.safetensors", None, "model.safetensors"),
        ("model.safetensors", b"short", "are damaged"),
    ],
)
def test_damaged_runs(place, tmp_path, capsys, command, name, content, words):
    copy = damaged(place, tmp_path, name, content)
    images = [place / "data" / "0.png"] if command == "caption" else []
    code, out, err = run(capsys, command, copy, *images)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.bad_input
def test_an_image_that_is_too_large_is_refused_in_one_sentence(place, tmp_path, capsys):
    """Between the library's limit and twice that, it would warn as well."""
    Image.new("1", (11_000, 11_000)).save(tmp_path / "bomb.png")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        code, out, err = run(capsys, "caption", place / "run", tmp_path / "bomb.png")
    assert (code, out, warned) == (2, "", [])
    assert "bomb.png' has 121000000; make it smaller" in err


@pytest.mark.bad_input
def test_truncated_weights(place, tmp_path, capsys):
    whole = (place / "run" / "model.safetensors").read_bytes()
    copy = damaged(place, tmp_path, "model.safetensors", whole[:-100])
    code, _, err = run(capsys, "caption", copy, place / "data" / "0.png")
    assert code == 2
    assert "are damaged" in err
    assert err.count("\n") == 1


@pytest.mark.bad_input
def test_a_run_of_another_kind(place, tmp_path, capsys):
    config = (place / "run" / "config.json").read_bytes().replace(b'"caption"', b'"translate"')
    copy = damaged(place, tmp_path, "config.json", config)
    code, _, err = run(capsys, "caption", copy, place / "data" / "0.png")
    assert code == 2
    assert "takes a run of kind 'caption'" in err
    assert "is of kind 'translate'" in err


@pytest.mark.bad_input
def test_a_tokenizer_of_another_run(place, tmp_path, capsys):
    copy = damaged(place, tmp_path, "tokenizer.json", b"")
    Tokenizer.train(LINES[:1], kind="word", vocab_size=50, lowercase=True).save(copy / "tokenizer.json")
    code, _, err = run(capsys, "caption", copy, place / "data" / "0.png")
    assert code == 2
    assert re.search(r"tokenizer in .* has 11 tokens and its model \d+; the two files belong", err)


@pytest.mark.bad_input
def test_data_that_moved(place, tmp_path, capsys):
    config = (place / "run" / "config.json").read_text().replace(str(place / "data"), "/moved/away")
    copy = damaged(place, tmp_path, "config.json", config.encode())
    code, _, err = run(capsys, "evaluate", copy)
    assert code == 2
    assert "was '/moved/away', which is not there any more; say where it is with --data" in err


def test_a_device_is_found():
    assert chosen_device("cpu").type == "cpu"
    assert chosen_device(None).type == ("cuda" if torch.cuda.is_available() else "cpu")
