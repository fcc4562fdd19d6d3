"""Sights on disk."""

import base64
import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import sightline as sl
from sightline.look.heads import head_table
from tests.look.look_oracle import MASKS, near, randn


def a_sight(**wish):
    q, k, v = randn(2, 3, 5, 7, seed=1), randn(2, 3, 11, 7, seed=2), randn(2, 3, 11, 7, seed=3)
    return sl.look(q, k, v, measure=sl.Look(**wish))


@pytest.mark.parametrize(
    "cut", [lambda x: x, lambda x: x[1], lambda x: x[:, 2], lambda x: x.mean_heads(), lambda x: x[0, 1:]]
)
def test_there_and_back(tmp_path, cut):
    sight = cut(a_sight(map=(2, 3), top=2))
    sight.save(tmp_path / "one.sight")
    loaded = sl.Sight.load(tmp_path / "one.sight")
    assert loaded.statistics.keys() == sight.statistics.keys()
    for name, x in sight.statistics.items():
        assert torch.equal(loaded.statistics[name], x)
        assert loaded.statistics[name].dtype == x.dtype
    for name in ("t", "s", "lead", "name", "averaged", "shape", "n_batch"):
        assert getattr(loaded, name) == getattr(sight, name)
    assert loaded.kept == ()
    assert torch.equal(loaded.map((2, 3)), sight.map((2, 3)))
    assert repr(loaded) == repr(sight.forget())
    assert [x.name for x in tmp_path.iterdir()] == ["one.sight"]


def test_a_differentiable_sight_of_a_named_module(tmp_path):
    model = torch.nn.TransformerEncoderLayer(6, 2, 5, batch_first=True)
    with sl.watch(model) as seen:
        model(torch.randn(3, 5, 6))
    seen["self_attn"].save(str(tmp_path / "x"))
    assert sl.Sight.load(str(tmp_path / "x")).name == "self_attn"
    x = randn(2, 3, 5, 7).requires_grad_()
    sl.look(x, x, x).save(tmp_path / "x")  # over the one that is there
    assert not sl.Sight.load(tmp_path / "x").received.requires_grad


@pytest.mark.bad_input
def test_files_that_are_no_sights(tmp_path):
    with pytest.raises(ValueError, match=r"there is no sight at .*nowhere; Sight\.save writes one"):
        sl.Sight.load(tmp_path / "nowhere")
    a_sight().save(tmp_path / "cut")
    whole = (tmp_path / "cut").read_bytes()
    for end in (0, 5, 100, len(whole) - 1):
        (tmp_path / "cut").write_bytes(whole[:end])
        with pytest.raises(ValueError, match="cut is not a safetensors file or is cut short"):
            sl.Sight.load(tmp_path / "cut")
    save_file({"received": torch.zeros(3)}, tmp_path / "other")
    with pytest.raises(ValueError, match=r"holds no sight, its format is None, not 'sightline\.Sight/2'"):
        sl.Sight.load(tmp_path / "other")
    for about in ("{}", "nonsense", "[1]", json.dumps({"t": 3, "colour": "red"})):
        metadata = {"format": "sightline.Sight/1", "about": about}
        save_file({"received": torch.zeros(3)}, tmp_path / "odd", metadata=metadata)
        with pytest.raises(ValueError, match=r"odd .*says of itself"):
            sl.Sight.load(tmp_path / "odd")


@pytest.mark.bad_input
def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(ValueError, match=r"a folder that exists, got .*gone"):
        a_sight().save(tmp_path / "gone" / "x")


def test_nothing_half_written_is_left(tmp_path, monkeypatch):
    a_sight().save(tmp_path / "x")
    before = (tmp_path / "x").read_bytes()

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="no space left"):
        a_sight().save(tmp_path / "x")
    assert [x.name for x in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == before


# With what later questions need


@pytest.mark.combinations
@pytest.mark.parametrize("mask", ["nothing", "causal", "padding", "dense", "bias_of_heads", "all_together"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_kept_sight_answers_after_loading(tmp_path, mask, dtype):
    q, k, v = (randn(2, h, n, 7, seed=n + h, dtype=dtype) for h, n in ((6, 5), (2, 11), (2, 11)))
    sight = sl.look(q, k, v, MASKS[mask]((2, 6), 5, 11)[0])
    sight.save(tmp_path / "x", keep=True)
    loaded = sl.Sight.load(tmp_path / "x")
    assert loaded.kept[0].inputs.q.dtype == dtype
    for one, other in ((sight, loaded), (sight[1], loaded[1]), (sight[:, 2], loaded[:, 2])):
        assert torch.equal(one.rows(range(5)), other.rows(range(5)))
        assert torch.equal(one.map((2, 3)), other.map((2, 3)))
        assert all(torch.equal(a, b) for a, b in zip(one.top(3), other.top(3), strict=True))
    assert repr(loaded) == repr(sight)
    loaded.kept[0].inputs.k.zero_()
    with pytest.raises(ValueError, match="written to since"):
        loaded.rows([1])


def test_what_was_seen_there_and_back(tmp_path):
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 5, batch_first=True), 3)
    x = randn(2, 11, 6, dtype=torch.float32)
    words = [[f"Ġword{i}" for i in range(11)]] * 2
    with torch.no_grad(), sl.watch(model, keep=True, tokens=words) as seen:
        model(x)
        model(x[:, :3])
    seen.save(tmp_path / "seen.safetensors", keep=True)
    seen.save(tmp_path / "small.safetensors")
    loaded = type(seen).load(tmp_path / "seen.safetensors")
    assert loaded.names() == seen.names()
    assert repr(loaded) == repr(seen)
    assert loaded.tokens == seen.tokens
    for name, calls in seen.items():
        for a, b in zip(calls, loaded.calls(name), strict=True):
            near(a.rows([0, 2]), b.rows([0, 2]), rtol=0, atol=0)
            assert a.tokens == b.tokens
    assert loaded[0][0].tokens[1][:2] == ("word0", "word1")
    assert loaded[0][1].tokens == ()  # of another length
    small = type(seen).load(tmp_path / "small.safetensors")
    assert not small[0][0].kept
    with pytest.raises(ValueError, match=r"holds no sight, .*Recording\.load reads it"):
        sl.Sight.load(tmp_path / "small.safetensors")
    with pytest.raises(ValueError, match=r"keep=True writes q and k, which this sight does not have"):
        small[0][0].save(tmp_path / "x", keep=True)


@pytest.mark.bad_input
def test_a_score_of_its_own_is_not_written(tmp_path):
    q = randn(1, 2, 5, 4, dtype=torch.float32)
    sight = sl.look(q, q, q, score=sl.scores.Additive(4, 4, 3))
    with pytest.raises(ValueError, match="come from a function or a module, which a file can't hold"):
        sight.save(tmp_path / "x", keep=True)


def test_files_of_the_format_before(tmp_path):
    about = {"t": 5, "s": 11, "lead": [2, 3], "name": "a", "averaged": False, "n_batch": 1}
    metadata = {"format": "sightline.Sight/1", "about": json.dumps(about)}
    save_file({"entropy": torch.ones(2, 3, 5), "lse": torch.ones(2, 3, 5)}, tmp_path / "old", metadata)
    assert sl.Sight.load(tmp_path / "old").source == "kernel"


# For other programs


def test_places_patterns_and_other_formats(monkeypatch):
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 5, batch_first=True), 3)
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model(randn(2, 5, 6, dtype=torch.float32))
    assert seen[1] is seen["layers.1.self_attn"]
    assert seen[-1] is seen["layers.2.self_attn"]
    assert seen["*.[02].*"].names() == ["layers.0.self_attn", "layers.2.self_attn"]
    assert len(seen["*"]) == len(seen) == 3
    with pytest.raises(ValueError, match="3 modules were seen, got the place 3"):
        seen[3]
    with pytest.raises(ValueError, match=r"no module that was seen matches '\*\.7\.\*'"):
        seen["*.7.*"]
    sight = seen[0]
    assert sight.numpy()["entropy"].shape == (2, 2, 5)
    read = json.loads(sight.to_json())
    assert read["queries"] == 5
    near(torch.tensor(read["statistics"]["received"]), sight.received)
    everything = json.loads(seen.to_json())
    assert list(everything["sights"]) == seen.names()
    assert everything["kind"] == "TransformerEncoder"
    assert "<td>layers.0.self_attn</td>" in seen._repr_html_()
    assert sight._repr_html_().startswith("<pre>Sight of layers.0.self_attn")
    assert head_table(seen)._repr_html_().count("<tr>") == len(head_table(seen)) + 1
    monkeypatch.setitem(sys.modules, "pandas", None)
    for each in (seen, sight):
        with pytest.raises(ImportError, match="needs pandas"):
            each.to_pandas()


def test_an_empty_row_is_null_in_json():
    x = randn(1, 1, 3, 4, dtype=torch.float32)
    sight = sl.look(x, x, x, sl.masks.dense(torch.tensor([[True] * 3, [False] * 3, [True] * 3])))
    assert json.loads(sight.to_json())["statistics"]["lse"][0][0][1] is None


@pytest.mark.bad_input
@pytest.mark.parametrize("wrong", [["the cat", ["a"]], [["a"], [3]], [3, 4]], ids=str)
def test_tokens_that_are_none(wrong):
    with pytest.raises(TypeError, match=r"tokens are those of a text.*got ('the cat'|3); "):
        sl.watch(nn.Linear(2, 2), tokens=wrong)


def test_a_notebook_shows_a_picture(tmp_path):
    x = randn(2, 3, 7, 4, dtype=torch.float32)
    sight = sl.look(x, x, x)
    png = sight._repr_png_()
    (tmp_path / "a.png").write_bytes(png)
    image = Image.open(tmp_path / "a.png")
    assert image.size == (196, 196)
    cells = torch.from_numpy(np.array(image)).float().sum(-1)[14::28, 14::28]
    mean = sight.rows(range(7)).mean((0, 1))
    assert int(cells.argmin()) == int(mean.argmax())  # dark is more
    assert base64.b64encode(png).decode() in sight._repr_html_()
    assert sight.forget()._repr_png_() is None
    assert "<img" not in sight.forget()._repr_html_()
    x.zero_()
    assert sight._repr_png_() is None
