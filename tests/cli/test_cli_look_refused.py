"""What ``sightline look`` refuses of a Hugging Face folder: one sentence, and exit code 2."""

import json
import shutil
import sys

import pytest
import torch

from sightline.cli import look_model
from tests.cli.look_folders import TEXT, run, save_bert


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("bert"))


@pytest.mark.bad_input
@pytest.mark.parametrize("kind", [".html", ".png"])
def test_a_place_that_can_not_be_written_is_refused_before_the_model_runs(
    folder, tmp_path, monkeypatch, kind
):
    monkeypatch.setattr(look_model, "open_folder", lambda *_: pytest.fail("the model ran"))
    (tmp_path / f"folder{kind}").mkdir()
    (tmp_path / "file").touch()
    locked = tmp_path / "locked"
    monkeypatch.setattr("os.access", lambda path, _: str(path) != str(tmp_path))
    for out, reason in (
        (tmp_path / f"folder{kind}", "it is a folder"),
        (tmp_path / "file" / f"a{kind}", "file' is a file, not a folder"),
        (locked / "new" / f"a{kind}", "permission denied"),
    ):
        code, printed, err = run(folder, TEXT, "--out", out)
        assert (code, printed) == (2, "")
        assert err.count("\n") == 1
        assert f"can't write {str(out)!r}: " in err
        assert reason in err
        assert err.endswith("choose another --out\n")
    assert not locked.exists()


def without(folder, tmp_path, *patterns):
    """A copy of a folder that lacks some files."""
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(*patterns))
    return copy


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nowhere", TEXT], "'nowhere' does not exist"),
        ([__file__, TEXT], "test_cli_look_refused.py' is a file, not a folder"),
        (["FOLDER", " "], "look needs a text to read, got ' '"),
        (["FOLDER", "the " * 11], "reads at most 11 tokens, got 12; give it a shorter text"),
        (
            ["FOLDER", TEXT, "--layer", "*.7.*"],
            "no layer matches '*.7.*'; this model has encoder.layer.0.att",
        ),
        (["FOLDER", TEXT, "--out", "page.txt"], "--out must end in .html for a page, or in one of .jpg"),
    ],
)
def test_bad_arguments(folder, args, words):
    code, out, err = run(*[folder if arg == "FOLDER" else arg for arg in args])
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (["config.json"], "there is no config.json in"),
        (["tokenizer*"], "there is no tokenizer in"),
        (["*.safetensors"], "there are no weights in"),
    ],
)
def test_folders_that_lack_something(folder, tmp_path, missing, words):
    code, out, err = run(without(folder, tmp_path, *missing), TEXT)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", "{", "config.json' is not JSON"),
        ("config.json", "[]", "config.json must hold one JSON object, got list"),
        ("config.json", '{"model_type": "nonsense"}', "can't load the"),
        ("model.safetensors", "rubbish", "can't load the model in"),
        ("tokenizer.json", "{}", "can't load the tokenizer in"),
        (
            "model.safetensors.index.json",
            '{"weight_map": {"a": "evil.bin"}}',
            "weights must be in safetensors files",
        ),
    ],
)
def test_folders_that_are_damaged(folder, tmp_path, name, content, words):
    copy = without(folder, tmp_path)
    (copy / name).write_text(content)
    code, out, err = run(copy, TEXT)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


class Evil:
    def __reduce__(self):
        return exec, ("raise SystemExit('ran')",)


@pytest.mark.bad_input
def test_pickled_weights_are_refused(folder, tmp_path):
    copy = without(folder, tmp_path, "*.safetensors")
    torch.save({"a": Evil()}, copy / "pytorch_model.bin")
    code, _, err = run(copy, TEXT)
    assert code == 2
    assert "got 'pytorch_model.bin'" in err
    assert "can run code when it is loaded" in err


@pytest.mark.bad_input
def test_weights_of_another_model(folder, tmp_path):
    copy = without(folder, tmp_path)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    code, _, err = run(copy, TEXT)
    assert code == 2
    assert "of the tensors that its config.json asks for, such as 'encoder.layer.2" in err


@pytest.mark.bad_input
def test_code_in_the_folder_is_not_run(folder, tmp_path):
    copy = without(folder, tmp_path)
    config = json.loads((copy / "config.json").read_text())
    own = {"model_type": "mine", "auto_map": {"AutoConfig": "mine.C", "AutoModel": "mine.M"}}
    (copy / "config.json").write_text(json.dumps(config | own))
    (copy / "mine.py").write_text("raise SystemExit('ran')")
    code, _, err = run(copy, TEXT)
    assert code == 2
    assert "can't load" in err
    assert err.count("\n") == 1


@pytest.mark.bad_input
def test_without_transformers_a_sentence(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    code, _, err = run(folder, "the cat")
    assert code == 2
    assert err == (
        "a Hugging Face folder needs transformers, which is not installed; pip install 'sightline[hf]'\n"
    )


@pytest.mark.bad_input
@pytest.mark.parametrize("nested", [False, True])
def test_a_config_of_more_layers_than_weights_is_refused_before_it_is_built(folder, tmp_path, nested):
    copy = without(folder, tmp_path)
    config = json.loads((copy / "config.json").read_text())
    (config.setdefault("text_config", {}) if nested else config)["num_hidden_layers"] = 10_000_000
    (copy / "config.json").write_text(json.dumps(config))
    code, printed, err = run(copy, TEXT)
    assert (code, printed, err.count("\n")) == (2, "", 1)
    assert "num_hidden_layers=10000000" in err
    assert "tensors" in err
