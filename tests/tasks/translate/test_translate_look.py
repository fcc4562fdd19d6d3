"""``sightline look`` of a translation: what is printed and drawn is what was asked for."""

import json
import re

import pytest
import torch
from PIL import Image

pytestmark = pytest.mark.plain

TEXT = "3 mai 1979"
CROSS = "decoder.layers.{}.multihead_attn"


@pytest.fixture
def look(folders, command):
    """What a look prints, by the model's name and the options."""

    def looked(model, *options, code=0):
        ended = command("look", folders[model], TEXT, *options, "--device", "cpu")
        assert ended.code == code, ended.err
        return ended.err if code else ended.out

    return looked


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


def test_json_has_every_attention_with_its_words(look):
    found = json.loads(look("transformer", "--json"))
    assert list(found) == ["source", "translation", "read", "written", "layers"]
    assert found["source"] == TEXT
    weights = torch.tensor(found["layers"][CROSS.format(1)])
    assert weights.shape[0] == 2
    assert weights.shape[2] == len(found["read"])
    assert list(json.loads(look("recurrent", "--json"))["layers"]) == ["attention"]


def test_the_table_is_of_the_layer_and_the_head_that_were_asked_for(look):
    found = json.loads(look("transformer", "--json"))
    layers, keys, t = found["layers"], found["read"], len(found["written"])
    first, second = (torch.tensor(layers[CROSS.format(i)])[:, :t] for i in (0, 1))
    cases = {
        ("--layer", 0, "--head", 1): (first[1], "layer 0, head 1; entropy in nats"),
        ("--layer", 1): (second.mean(0), "layer 1; entropy in nats"),
        ("--head", 3): (second[1], "layer 1, head 1; entropy in nats"),
        ("--layer", "encoder.layers.1", "--head", 0): (
            torch.tensor(layers["encoder.layers.1.self_attn"])[0],
            "encoder.layers.1.self_attn; layer 0, head 0; entropy in nats",
        ),
    }
    for options, (weights, label) in cases.items():
        told = look("transformer", *options)
        assert printed(told) == rows(weights.tolist(), keys), options
        assert label in told.splitlines()


def test_without_a_wish_the_table_is_of_all_heads(look):
    found = json.loads(look("transformer", "--json"))
    every = torch.cat([torch.tensor(found["layers"][CROSS.format(i)]) for i in (0, 1)])
    told = look("transformer")
    assert printed(told) == rows(every.mean(0)[: len(found["written"])].tolist(), found["read"])
    assert "mean of 4 heads, 2 per layer; entropy in nats" in told


def test_a_pattern_takes_all_layers_that_it_fits(look):
    names = ["encoder.layers.1.self_attn", "decoder.layers.1.self_attn", CROSS.format(1)]
    assert list(json.loads(look("transformer", "--layer", "*.1.*", "--json"))["layers"]) == names
    told = look("transformer", "--layer", "*.1.*")
    assert [line.partition(";")[0] for line in told.splitlines() if "entropy in nats" in line] == names
    one = json.loads(look("transformer", "--layer", "*.1.*", "--head", 1, "--json"))["layers"]
    assert [len(weights) for weights in one.values()] == [1, 1, 1]


@pytest.mark.parametrize("layer", ["1", "encoder.layers.0"])
def test_a_layer_is_drawn_by_number_or_name(look, layer, tmp_path):
    look("transformer", "--layer", layer, "--out", tmp_path / "layer.png")
    look("transformer", "--layer", layer, "--head", 0, "--out", tmp_path / "head.png")
    with Image.open(tmp_path / "layer.png") as by_head, Image.open(tmp_path / "head.png") as one:
        assert by_head.size != one.size  # a panel for each of two heads, and a single map


def test_a_page_shows_every_layer(look, tmp_path):
    look("transformer", "--out", tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert all(name in page for name in ("encoder.layers.0.self_attn", CROSS.format(1)))


def test_a_model_with_one_map_says_nothing_of_heads(look):
    told = look("recurrent")
    assert told.splitlines()[-1] == "entropy in nats"
    assert printed(look("recurrent", "--layer", 0)) == printed(told)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        ("recurrent", ["--head", 1], "head must be 0, there is only one, got 1"),
        ("recurrent", ["--layer", 9], "layer must be 0, there is only one, got 9"),
        ("transformer", ["--head", 4], "head must be between 0 and 3, there are 4 heads, got 4"),
        ("transformer", ["--layer", 1, "--head", 2], "between 0 and 1, there are 2 heads, got 2"),
        ("transformer", ["--layer", 2], "layer must be between 0 and 1, there are 2 layers, got 2"),
        ("transformer", ["--layer", "decoder", "--out", "x.png"], "one layer, --layer 'decoder' fits 4: dec"),
    ],
)
def test_what_is_not_there_is_told_in_a_sentence(look, model, options, sentence):
    assert sentence in look(model, *options, code=2)
