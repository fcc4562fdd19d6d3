"""``sightline look`` of a translation: what is printed, drawn and said is what was asked for."""

import json
import re

import pytest
import torch
from matplotlib.text import Text

from sightline.cli import look_translate
from tests.cli.translate_runs import make_runs, run

TEXT = "3 mai 1979"
CROSS = "decoder.layers.{}.multihead_attn"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp("look"))


@pytest.fixture
def look(runs, capsys):
    """What a look prints, by the model's name and the options."""

    def looked(model, *options, code=0):
        capsys.readouterr()
        assert run("look", runs[model], TEXT, *options, "--device", "cpu") == code
        told = capsys.readouterr()
        return told.err if code else told.out

    return looked


@pytest.fixture
def saved(monkeypatch):
    """The figures that are saved."""
    figures = []
    save = look_translate.save
    monkeypatch.setattr(
        look_translate, "save", lambda figure, path: (figures.append(figure), save(figure, path))
    )
    return figures


def rows(weights, keys):
    """The numbers of a table, as they are printed."""
    found = []
    for row in torch.tensor(weights):
        entropy = -float((row * row.clamp_min(1e-30).log()).sum())
        found.append((keys[int(row.argmax())], f"{float(row.max()):.3f}", f"{entropy:.2f}"))
    return found


def printed(told):
    """The same of the tables in what was printed: of each line the last three words."""
    numbers = re.compile(r"(\S+)\s+(\d\.\d{3})\s+(\d+\.\d\d)$")
    return [found.groups() for line in told.splitlines() if (found := numbers.search(line.rstrip()))]


def test_the_table_is_of_the_layer_and_the_head_that_were_asked_for(look):
    found = json.loads(look("transformer", "--json"))
    layers, keys = found["layers"], found["read"]
    first, second = (torch.tensor(layers[CROSS.format(i)]) for i in (0, 1))
    cases = {
        ("--layer", 0, "--head", 1): (first[1], f"{CROSS.format(0)}, head 1; entropy in nats"),
        ("--layer", 1): (second.mean(0), f"{CROSS.format(1)}; heads averaged; entropy in nats"),
        ("--head", 3): (second[1], f"{CROSS.format(1)}, head 1; entropy in nats"),
        ("--layer", "encoder.layers.1", "--head", 0): (
            torch.tensor(layers["encoder.layers.1.self_attn"])[0],
            "encoder.layers.1.self_attn, head 0; entropy in nats",
        ),
    }
    for options, (weights, said) in cases.items():
        told = look("transformer", *options)
        assert printed(told) == rows(weights.tolist(), keys), options
        assert said in told.splitlines()


def test_without_a_wish_the_table_is_of_all_heads(look):
    found = json.loads(look("transformer", "--json"))
    every = torch.cat([torch.tensor(found["layers"][CROSS.format(i)]) for i in (0, 1)])[
        :, : len(found["written"])
    ]
    told = look("transformer")
    assert printed(told) == rows(every.mean(0).tolist(), found["read"])
    assert "the mean of 4 heads, 2 of each layer; entropy in nats; --out page.html shows every head" in told


def test_a_pattern_takes_all_layers_that_it_fits(look):
    names = ["encoder.layers.1.self_attn", "decoder.layers.1.self_attn", CROSS.format(1)]
    assert list(json.loads(look("transformer", "--layer", "*.1.*", "--json"))["layers"]) == names
    told = look("transformer", "--layer", "*.1.*")
    assert [line.partition(";")[0] for line in told.splitlines() if "entropy in nats" in line] == names
    one = json.loads(look("transformer", "--layer", "*.1.*", "--head", 1, "--json"))["layers"]
    assert [len(weights) for weights in one.values()] == [1, 1, 1]


def test_a_figure_says_which_layer_and_head_it_is_of(look, saved, tmp_path):
    found = json.loads(look("transformer", "--json"))
    out = tmp_path / "x.png"
    look("transformer", "--layer", 1, "--head", 0, "--out", out)
    look("transformer", "--layer", "encoder.layers.0", "--head", 1, "--out", out)
    look("transformer", "--layer", 0, "--out", out)
    for figure, title in zip(
        saved,
        (f"{CROSS.format(1)}, head 0", "encoder.layers.0.self_attn, head 1", CROSS.format(0)),
        strict=True,
    ):
        said = " ".join(text.get_text() for text in figure.findobj(Text)).replace("\n", " ")
        assert f"{found['translation']}: {title}" in said
    drawn = torch.tensor(saved[0].axes[0].images[0].get_array().data).float()
    torch.testing.assert_close(drawn, torch.tensor(found["layers"][CROSS.format(1)])[0])
    assert len([ax for ax in saved[2].axes if ax.get_title().startswith("head")]) == 2


def test_a_page_is_of_what_was_asked_for(look, tmp_path):
    out = tmp_path / "x.html"

    def captions(model, *options):
        assert "--out page.html" not in look(model, *options, "--out", out)
        return re.findall("<figcaption>(.*)</figcaption>", out.read_text())

    assert captions("transformer", "--layer", 0, "--head", 1) == [
        f"{CROSS.format(0)}, head 1: cross-attention."
    ]
    assert captions("transformer", "--layer", "encoder.layers.0") == [
        "encoder.layers.0.self_attn: which words look at which, heads averaged.",
        "encoder.layers.0.self_attn: self-attention, head by head.",
    ]
    assert captions("transformer")[0].endswith("(across), the mean of 4 heads, 2 of each layer.")
    assert captions("recurrent") == ["What each written word (down) looked at in the source (across)."]
    assert "A recurrent translator, from the run &#x27;recurrent&#x27;." in out.read_text()


def test_a_model_with_one_map_says_nothing_of_heads(look):
    told = look("recurrent")
    assert told.splitlines()[-1] == "entropy in nats"
    assert printed(look("recurrent", "--layer", 0)) == printed(told)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        ("recurrent", ["--head", 1], "this model has one head, number 0, got --head 1; leave --head out"),
        ("recurrent", ["--layer", 9], "one attention, layer 0, got --layer '9'; leave it out"),
        ("transformer", ["--head", 4], "between 0 and 3, the heads of all layers, got 4"),
        (
            "transformer",
            ["--layer", 1, "--head", 2],
            f"the heads of {CROSS.format(1)}, got 2",
        ),
        ("transformer", ["--layer", 2], "matches '2'; it has encoder.layers.0.self_attn"),
        ("transformer", ["--layer", "decoder", "--out", "x.png"], "one layer, --layer 'decoder' fits 4: dec"),
    ],
)
def test_what_is_not_there_is_told_in_a_sentence(look, model, options, sentence):
    assert sentence in look(model, *options, code=2)


@pytest.mark.bad_input
def test_a_head_is_drawn_or_refused_by_a_translation(runs, tmp_path, capsys):
    asked = ["translate", runs["transformer"], TEXT, "--device", "cpu", "--head", 1]
    assert run(*asked) == 2
    assert "got --head 1 and no --out" in capsys.readouterr().err
    assert run(*asked, "--out", tmp_path / "x.html") == 0
    assert f"{CROSS.format(0)}, head 1: cross-attention." in (tmp_path / "x.html").read_text()


def test_one_that_the_limit_ended_has_no_step_after_it(look):
    told = json.loads(look("transformer", "--json"))
    assert len(told["written"]) == 2 * len(told["read"]) + 10
    for name in (CROSS.format(0), CROSS.format(1)):
        assert len(told["layers"][name][0]) == len(told["written"])
