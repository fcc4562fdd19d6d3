"""What ``sightline train caption`` says: of flags that would do nothing, and of runs that go on or don't."""

import shutil

import pytest
from test_train_cli import pictures, sightline, train  # noqa: F401 - a fixture

from sightline.models.run_folder import kind_of


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--sc-batch-size", "3"], "--sc-batch-size is for the self-critical stage, which was not asked for"),
        (["--no-sc-drop"], "--sc-drop is for the self-critical stage, which was not asked for"),
        (["--self-critical", "--sc-epochs", "0"], "self-critical stage: epochs must be at least 1, got 0"),
        (["--self-critical", "--sc-lr", "0"], "self-critical stage: lr must be a positive number, got 0.0"),
        (["--self-critical", "--sc-draw", "lots"], "self-critical stage: unknown draw 'lots'"),
        (
            ["--self-critical", "--sc-temperature", "inf"],
            "self-critical stage: temperature must be a positive number, got inf",
        ),
        (["--vocabulary", "3"], "vocabulary must be above 4, got 3"),
    ],
)
def test_settings_are_named_as_they_were_typed(pictures, tmp_path, capsys, words, sentence):  # noqa: F811
    assert train(pictures, tmp_path / "run", *words) == 2
    said = capsys.readouterr().err
    assert said.startswith(sentence)
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_not_there_begins_and_one_that_is_finished_stays(pictures, tmp_path, capsys):  # noqa: F811
    out = tmp_path / "run"
    assert train(pictures, out, "--epochs", "1", "--resume") == 0
    said = capsys.readouterr().err
    assert said.startswith(f"there is nothing to resume in '{out}': a new run begins\n")
    assert "finished" not in said
    assert kind_of(out) == "caption"
    assert sightline("train", "caption", "--out", out, "--resume") == 0
    printed = capsys.readouterr()
    assert printed.out == f"{out}\n"
    assert printed.err == "the run was finished before: nothing was left to train\n"


@pytest.mark.bad_input
def test_nothing_to_resume_and_no_data(tmp_path, capsys):
    out = tmp_path / "nosuch"
    assert sightline("train", "caption", "--out", out, "--resume") == 2
    said = capsys.readouterr().err
    assert said.startswith(f"there is nothing to resume in '{out}'")
    assert "\na training needs data; add --data with a folder" in said
    assert said.count("\n") == 2


@pytest.mark.bad_input
def test_a_file_where_the_folder_should_be(pictures, tmp_path, capsys):  # noqa: F811
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name, stands in (("file", "file"), ("file/run", "file"), ("link", "link")):
        for more in ([], ["--resume"]):
            assert train(pictures, tmp_path / name, *more) == 2
            said = capsys.readouterr().err
            assert said == f"--out must be a folder, '{tmp_path / stands}' is none; choose another --out\n"
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.bad_input
def test_a_second_stage_goes_on_with_its_data_alone(pictures, tmp_path, capsys):  # noqa: F811
    data, out = tmp_path / "data", tmp_path / "run"
    shutil.copytree(pictures, data)
    words = ["--self-critical", "--sc-epochs", "1", "--sc-samples", "2"]
    assert train(data, out, "--epochs", "1", *words) == 0
    (state,) = (out / "checkpoints" / "self-critical").glob("*/state.json")
    state.write_text(state.read_text().replace('"done": true', '"done": false'))
    table = data / "captions.csv"
    table.write_text(table.read_text().replace("a red picture", "a red painting", 1))
    capsys.readouterr()
    assert sightline("train", "caption", "--out", out, "--resume") == 2
    assert "a run goes on with the data it began with" in capsys.readouterr().err
