"""What a training that goes on reads: a file that was edited or damaged is refused, whatever ended the run.

A run that was killed has no manifest: here one is taken away.
"""

import json
import shutil
from pathlib import Path

import pytest

import sightline as sl
from tests.command import run

HERE = Path(__file__).parents[1] / "fixtures" / "written_by_0_1"
MANIFEST = "manifest.json"

pytestmark = pytest.mark.bad_input


def swap_ids(path):
    content = json.loads(path.read_text())
    vocab = content["model"]["vocab"]
    one, other = sorted(vocab, key=vocab.get)[-3:-1]
    vocab[one], vocab[other] = vocab[other], vocab[one]
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1))


def without_normalizer(path):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"normalizer": None}))


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def remove(path):
    path.unlink()


def flip(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 16
    path.write_bytes(content)


def setting(part, **changed):
    def edit(path):
        content = json.loads(path.read_text())
        content[part] |= changed
        path.write_text(json.dumps(content))

    edit.__name__ = next(iter(changed))
    return edit


def without_setting(path):
    content = json.loads(path.read_text())
    del content["train"]["lr"]
    path.write_text(json.dumps(content))


EDITS = {
    "tokenizer": [swap_ids, without_normalizer, cut, remove, flip],
    "config": [setting("train", lr=0.123), setting("model", d_model=5), without_setting, cut, remove],
    "model": [flip, cut],
}


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def edited(folder, names):
    """A copy of the folder for each edit of each file that a run reads, with the name of the edit."""
    for name in names:
        for edit in EDITS[name.rpartition("/")[2].partition(".")[0]]:
            out = shutil.copytree(folder, folder.parent / f"edited-{edit.__name__}", symlinks=True)
            edit(out / name)
            yield out, f"{name}, {edit.__name__}"
            shutil.rmtree(out)


def refused(words, about):
    result = run(*words)
    assert (result.code, result.out) == (2, ""), (about, result)
    assert "Traceback" not in result.err
    return result.err.strip().splitlines()[-1]


def read_on_resume(folder):
    names = ["config.json", "model.safetensors", "checkpoints/main/model.safetensors"]
    return [*names, *sorted(path.name for path in folder.glob("tokenizer*.json"))]


@pytest.mark.parametrize("end", ["finished", "killed"])
def test_a_training_goes_on_with_the_files_it_has_written(case, trained, end, tmp_path):
    folder = shutil.copytree(trained[0], tmp_path / "run")
    if end == "killed":
        (folder / MANIFEST).unlink()
    for out, about in edited(folder, read_on_resume(folder)):
        before = contents(out)
        sentence = refused(["train", case.kind, "--out", out, "--resume", "--epochs", 5], about)
        assert str(out) in sentence, about
        assert contents(out) == before, about
    assert run("train", case.kind, "--out", folder, "--resume", "--epochs", 5).code == 0


def test_a_killed_run_is_opened_with_the_files_it_was_trained_with(case, trained, tmp_path):
    folder = shutil.copytree(trained[0], tmp_path / "run")
    (folder / MANIFEST).unlink()
    names = [name for name in read_on_resume(folder) if "/" not in name]
    for out, about in edited(folder, names):
        sentence = refused([case.kind, out, *case.inputs], about)
        assert str(out) in sentence, about
        with pytest.raises((ValueError, OSError)):
            sl.open_run(out)
    assert sl.open_run(folder).kind == case.kind


def test_what_was_edited_on_purpose_is_opened_with_force_and_not_resumed(case, trained, tmp_path):
    out = shutil.copytree(trained[0], tmp_path / "run")
    path = next(iter(sorted(out.glob("tokenizer*.json"))), out / "config.json")
    (swap_ids if path.name != "config.json" else setting("train", lr=0.123))(path)
    for _ in range(2):
        sentence = refused(["train", case.kind, "--out", out, "--resume", "--epochs", 5], path.name)
        assert sentence.endswith("copy the run anew, or train into another folder")
        (out / MANIFEST).unlink(missing_ok=True)
    assert sl.open_run(out, force=True).kind == case.kind


def test_a_refused_command_leaves_the_run_as_it_was(case, trained, tmp_path):
    out = shutil.copytree(trained[0], tmp_path / "run")
    before = contents(out)
    refused(["train", case.kind, "--out", out, "--resume", "--seed", 17], "another seed")
    assert contents(out) == before
    if case.folder is not None and case.name != "translate-recurrent":
        words = ["train", case.kind, "--data", case.folder, "--out", out, "--resume", "--epochs", 5]
        refused(words, "other data")
        assert contents(out) == before


@pytest.mark.parametrize("task", ["translate", "translate-recurrent", "caption"])
@pytest.mark.parametrize("edit", [without_normalizer, cut])
def test_a_killed_run_of_0_1_whose_tokenizer_is_damaged(task, edit, tmp_path, monkeypatch):
    (tmp_path / "DATA").symlink_to(HERE / "data")
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "run"
    shutil.unpack_archive(HERE / task / "killed.zip", out)
    for path in out.glob("tokenizer*.json"):
        whole = path.read_bytes()
        edit(path)
        sentence = refused(["train", task.partition("-")[0], "--out", out, "--resume"], path.name)
        assert f"{str(path)!r} is no tokenizer.json" in sentence
        path.write_bytes(whole)


def test_a_run_that_was_killed_before_its_first_checkpoint_learns_its_tokenizers_anew(tmp_path):
    words = "train translate --data dates --n-train 41 --n-val 13 --n-test 11 --vocabulary 160 --d-model 6"
    words += " --n-heads 3 --n-layers 1 --d-ff 11 --max-length 41 --steps 2 --device cpu --no-tensorboard"
    whole, out = tmp_path / "whole", tmp_path / "run"
    assert run(*words.split(), "--out", whole).code == 0
    out.mkdir()
    for name in ("config.json", "tokenizer.source.json", "tokenizer.target.json"):
        shutil.copy(whole / name, out)
    swap_ids(out / "tokenizer.target.json")
    assert run("train", "translate", "--out", out, "--resume").code == 0
    for name in ("tokenizer.target.json", "metrics.csv"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
