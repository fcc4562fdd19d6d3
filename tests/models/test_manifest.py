"""A run vouches for its files: what is not as it was written is named before anything of it is used."""

import json
import logging

import pytest
import torch
from safetensors.torch import load_file, save_file

import sightline as sl
from sightline.models.captioner import Captioner, CaptionerConfig
from sightline.models.manifest import (
    MANIFEST,
    check_unchanged,
    drop_manifest,
    read_manifest,
    write_manifest,
)

CONFIG = CaptionerConfig(vocab_size=13, image_size=20, patch=10, d_model=6, n_heads=2, n_layers=1, d_ff=7)
WEIGHTS = "model.safetensors"


@pytest.fixture
def run(tmp_path):
    Captioner(CONFIG).save(tmp_path)
    return tmp_path


def edit(path, **changed):
    content = json.loads(path.read_text())
    content["model"] |= changed
    path.write_text(json.dumps(content))


def test_it_names_the_files_that_open_a_run_and_what_became_of_them(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    written = (
        "config.json",
        "model.safetensors",
        "tokenizer_source.json",
        "metrics.csv",
        "checkpoints/state.json",
    )
    for name in written:
        (tmp_path / name).write_text(name)
    write_manifest(tmp_path)
    assert sorted(read_manifest(tmp_path)) == ["config.json", "model.safetensors", "tokenizer_source.json"]
    (tmp_path / "metrics.csv").write_text("a line more")
    check_unchanged(tmp_path, remedy="")
    (tmp_path / "tokenizer_source.json").write_text("tokenizer_source.jsox")
    with pytest.raises(ValueError, match=r"'tokenizer_source\.json' has other bytes than were .*; copy it"):
        check_unchanged(tmp_path, remedy="copy it")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"'model\.safetensors' is missing"):
        check_unchanged(tmp_path, remedy="")
    drop_manifest(tmp_path)
    assert read_manifest(tmp_path) is None
    check_unchanged(tmp_path, remedy="")


def test_a_manifest_of_an_earlier_version_vouches_for_more_than_is_read(run):
    manifest = json.loads((run / MANIFEST).read_text())
    entry = {"bytes": 3, "sha256": "0" * 64}
    manifest["files"] |= {"metrics.csv": entry, "checkpoints/main/state.json": entry}
    (run / MANIFEST).write_text(json.dumps(manifest))
    assert Captioner.load(run).config == CONFIG


@pytest.mark.bad_input
def test_every_bit_of_the_weights_counts(run):
    path = run / WEIGHTS
    whole = path.read_bytes()
    for at in range(0, 8 * len(whole), 997):
        flipped = bytearray(whole)
        flipped[at // 8] ^= 1 << at % 8
        path.write_bytes(flipped)
        with pytest.raises(ValueError, match=r"damaged|other bytes than were written"):
            Captioner.load(run)
    path.write_bytes(whole)
    Captioner.load(run)


def test_force_opens_what_is_not_as_it_was_and_says_so(run, caplog):
    tensors = load_file(run / WEIGHTS)
    tensors["decoder.bias"] += 1
    save_file(tensors, run / WEIGHTS)
    with caplog.at_level(logging.WARNING, logger="sightline"):
        model = Captioner.load(run, force=True)
    assert torch.equal(model.state_dict()["decoder.bias"], tensors["decoder.bias"])
    assert "'model.safetensors' has other bytes than were written; opened all the same" in caplog.text


def test_a_run_without_a_manifest_is_taken_as_it_is(run):
    drop_manifest(run)
    edit(run / "config.json", max_length=39)
    assert Captioner.load(run).config.max_length == 39


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        '{"files": {"config.json": {"bytes": 3}}}',
        '{"files": {"../../etc/config.json": {"bytes": "3", "sha256": ""}}}',
        '{"files": []}',
    ],
)
def test_a_manifest_that_is_none(run, content):
    (run / MANIFEST).write_text(content)
    with pytest.raises(ValueError, match=r"is not JSON|a manifest has the bytes"):
        Captioner.load(run)


@pytest.mark.bad_input
def test_a_file_that_came_later_is_not_trusted(run):
    manifest = json.loads((run / MANIFEST).read_text())
    del manifest["files"][WEIGHTS]
    (run / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=r"'model\.safetensors' was not there"):
        Captioner.load(run)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"n_layers": 10**9}, "n_layers may be at most 1000, got 1000000000"),
        ({"n_layers": 900}, "n_layers is 900 and there are only so many tensors"),
        ({"d_model": 60000}, "d_model is 60000 and no tensor is wider than"),
        ({"d_model": "8"}, "d_model must be a whole number, got '8'"),
        ({"d_model": True}, "d_model must be a whole number, got True"),
        ({"d_model": 12}, r"has shape .* there and .* in the model"),
        ({"vocab_size": 10**30}, "vocab_size may be at most"),
        ({"image_size": 2**40}, "image_size may be at most"),
        ({"stem": 900}, "stem may be at most 12"),
        ({"dropout": None}, "dropout must be a number, got None"),
        ({"positions": ["x"]}, "positions must be a text"),
    ],
)
def test_a_config_is_held_against_the_weights_before_anything_is_made(run, changed, words):
    edit(run / "config.json", **changed)
    write_manifest(run)
    with pytest.raises(ValueError, match=words):
        Captioner.load(run)


@pytest.mark.bad_input
def test_weights_that_are_no_numbers_are_refused(run, caplog):
    tensors = load_file(run / WEIGHTS)
    tensors["decoder.bias"][3] = torch.nan
    save_file(tensors, run / WEIGHTS)
    write_manifest(run)
    with pytest.raises(ValueError, match=r"finite numbers, 1 of 13 in 'decoder\.bias' .* are not.*--force"):
        Captioner.load(run)
    assert Captioner.load(run, force=True).state_dict()["decoder.bias"].isnan().sum() == 1


def test_a_model_without_memory_for_it_is_refused(monkeypatch):
    monkeypatch.setattr("sightline.untrusted.free_memory", lambda: 1000)
    with pytest.raises(ValueError, match=r"the model needs \d+ bytes of memory, 1000 bytes are free"):
        Captioner.build(CONFIG)


def test_a_newer_versions_run_says_so(run, caplog):
    content = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(content | {"version": "99.0.0"}))
    (run / MANIFEST).unlink()
    with caplog.at_level(logging.WARNING, logger="sightline"), pytest.raises(ValueError, match="tokenizer"):
        sl.open_run(run)
    assert "was written by sightline 99.0.0, this is" in caplog.text
