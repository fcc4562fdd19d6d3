"""Sights on disk."""

import json

import pytest
import torch
from safetensors.torch import save_file

import sightline as sl
from tests.look.look_oracle import randn


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
    with pytest.raises(ValueError, match=r"holds no sight, its format is None, not 'sightline\.Sight/1'"):
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
