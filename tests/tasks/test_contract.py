"""What every task keeps: trained, killed, resumed, evaluated, predicted and looked into by the same commands.

The tasks are those of :mod:`tests.tasks.cases`, the one of ``examples/task_of_your_own.py`` among them.
"""

import csv
import dataclasses
import itertools
import json
import random
import re
import shlex
import shutil
import signal

import pytest
import torch
from PIL import Image

import sightline as sl
from sightline.models.run_folder import read_config
from sightline.tasks import task_of
from tests.command import run, start
from tests.tasks.cases import CASES, OWN_TASK, in_turn

KEPT = ("model.safetensors", "metrics.csv")


def contents(folder):
    """What a run leaves, to the bit."""
    return {name: (folder / name).read_bytes() for name in KEPT}


def checkpoint(folder):
    """The state of the last checkpoint, or an empty one."""
    try:
        place = folder / "checkpoints" / "main"
        name = json.loads((place / "latest.json").read_text())["checkpoint"]
        return json.loads((place / name / "state.json").read_text())
    except FileNotFoundError:
        return {"step": 0, "epoch": 0, "batch": 0}


def refused(result):
    """The one sentence of a command that refuses."""
    assert (result.code, result.out) == (2, ""), result
    (sentence,) = result.err.strip().splitlines()
    return sentence


# Training


def test_a_training_prints_its_folder_alone_and_its_progress_to_standard_error(trained):
    folder, result = trained
    assert result.out == f"{folder}\n"
    assert re.search(
        r"^[\d,]+ examples, [\d,]+ steps an epoch, [\d,]+ steps in all; [\d,]+ trainable parameters",
        result.err,
        re.MULTILINE,
    )
    assert [int(n) for n in re.findall(r"^epoch (\d+)/4  loss ", result.err, re.MULTILINE)] == [1, 2, 3, 4]
    assert all(len(line) <= 110 for line in result.err.splitlines() if line.startswith("epoch"))


def test_the_end_prints_the_next_two_commands(trained):
    folder, result = trained
    *_, heading, evaluate, look = result.err.splitlines()
    assert heading == "next:"
    assert shlex.split(evaluate)[-2:] == ["evaluate", str(folder)]
    words = shlex.split(look)
    assert words[-3:-1] == ["look", str(folder)]
    assert run(*words[-3:]).code == 0


SIGNALLED = """
import itertools, os
from torch.optim.optimizer import register_optimizer_step_{when}_hook
steps = itertools.count(1)
def hook(*_):
    if next(steps) == {step}:
        os.kill(os.getpid(), {number})
register_optimizer_step_{when}_hook(hook)
"""


def signalled(case, out, place, number, *, step, when="pre"):
    """How a training ends that gets a signal in one of its steps, before or after the weights change."""
    sends = place / "sends.py"
    sends.write_text(SIGNALLED.format(number=int(number), step=step, when=when))
    return start(*case.train(out), place=place, imports=[OWN_TASK, sends]).result()


def steps_of(trained):
    """How many steps an epoch and the whole training have."""
    found = re.search(r"([\d,]+) steps an epoch, ([\d,]+) steps in all", trained[1].err)
    return [int(text.replace(",", "")) for text in found.groups()]


@pytest.mark.parametrize("moment", ["a step", pytest.param("the end of an epoch", marks=pytest.mark.long)])
def test_a_killed_training_goes_on_to_the_bit(case, trained, moment, tmp_path):
    out, chance = tmp_path / "run", random.Random(f"{case.name} {moment}")  # noqa: S311
    an_epoch, total = steps_of(trained)
    if moment == "a step":  # not the one after a save, which comes every third: something is lost
        step, when = chance.choice([n for n in range(4, total) if n % 3 != 1 and n % an_epoch != 1]), "pre"
    else:
        step, when = chance.randrange(1, 4) * an_epoch, "post"
    assert signalled(case, out, tmp_path, signal.SIGKILL, step=step, when=when).code == -signal.SIGKILL
    assert 0 < checkpoint(out)["step"] < step
    assert run(*case.train(out, "--resume")).code == 0
    assert contents(out) == contents(trained[0])


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_a_signal_saves_and_says_how_to_go_on(case, trained, number, tmp_path):
    out, (an_epoch, total) = tmp_path / "run", steps_of(trained)
    step = next(n for n in range(4, total) if n % 3 and n % an_epoch)  # nothing else saves it
    result = signalled(case, out, tmp_path, number, step=step)
    assert (result.code, result.out) == (128 + number, "")
    said, command = result.err.splitlines()[-2:]
    assert said == f"stopped after step {step} of {total}; everything is saved; go on with"
    assert checkpoint(out)["step"] == step
    words = shlex.split(command)
    assert words[-1] == "--resume"
    assert run(*words[words.index("train") :]).code == 0
    assert contents(out) == contents(trained[0])


def test_more_epochs_train_longer(case, trained, tmp_path):
    out = shutil.copytree(trained[0], tmp_path / "run")
    before = (out / "metrics.csv").read_text()
    result = run("train", case.kind, "--out", out, "--resume")
    assert result.code == 0
    assert "nothing was left to train; more --epochs train longer" in result.err
    assert (out / "metrics.csv").read_text() == before
    assert run("train", case.kind, "--out", out, "--resume", "--epochs", 6).code == 0
    with (out / "metrics.csv").open() as file:
        assert float(list(csv.DictReader(file))[-1]["epoch"]) == 6
    assert read_config(out)["train"]["epochs"] == 6


def test_a_training_starts_from_another_runs_weights(case, trained, tmp_path):
    folder, _ = trained
    result = run(*case.train(tmp_path / "run", "--from", folder, "--epochs", "1", "--lr", "1e-12"))
    assert result.code == 0, result.err
    assert re.search(r"([\d,]+) of \1 weights are taken from " + re.escape(repr(str(folder))), result.err)
    one, other = (sl.open_run(path).model.state_dict() for path in (tmp_path / "run", folder))
    torch.testing.assert_close(one, other)
    sentence = refused(run(*case.train(folder, "--resume", "--from", folder)))
    assert "--from starts a new run" in sentence


def test_a_training_in_python_is_that_of_the_command(case, trained, tmp_path):
    found = sl.tasks.train(case.kind, out=tmp_path / "run", shown=False, **case.fields())
    assert (found.kind, found.folder) == (case.kind, tmp_path / "run")
    assert contents(tmp_path / "run") == contents(trained[0])


# What is refused before any work is done


def test_an_unknown_metric_is_refused_before_training(case, tmp_path):
    sentence = refused(run(*case.train(tmp_path / "run", "--metric", "beauty")))
    assert sentence.startswith("unknown metric 'beauty', expected one of")
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use_is_refused(case, trained):
    folder, _ = trained
    before = contents(folder)
    assert "is not empty" in refused(run(*case.train(folder)))
    assert contents(folder) == before


def test_data_that_is_not_there_is_refused(case, tmp_path):
    sentence = refused(run(*case.train_on(tmp_path / "nowhere", tmp_path / "run")))
    assert "nowhere" in sentence
    assert not (tmp_path / "run").exists()


def test_an_empty_folder_of_data_is_refused(case, tmp_path):
    (tmp_path / "empty").mkdir()
    sentence = refused(run(*case.train_on(tmp_path / "empty", tmp_path / "run")))
    assert "empty" in sentence
    assert not (tmp_path / "run").exists()


def test_an_option_of_another_task_is_refused_by_its_being_given(case, trained):
    name, value = case.foreign
    result = run("evaluate", trained[0], name, value)
    assert (result.code, result.out) == (2, "")
    assert name in result.err


def test_an_unknown_setting_is_refused(case, tmp_path):
    result = run(*case.train(tmp_path / "run", "--no-such-setting", "1"))
    assert (result.code, result.out) == (2, "")
    assert "--no-such-setting" in result.err
    with pytest.raises(ValueError, match="unknown setting 'no_such_setting'"):
        sl.tasks.train(case.kind, out=tmp_path / "run", no_such_setting=1)
    assert not (tmp_path / "run").exists()


# Evaluation


def test_an_evaluation_prints_one_json_object(case, trained):
    result = run("evaluate", trained[0], "--json")
    assert result.code == 0
    assert tuple(result.json) == (*task_of(case.kind).scores, *case.extra)
    assert all(value is None or isinstance(value, float) for value in result.json.values())
    assert "of split 'test' of" in result.err.splitlines()[0]


def test_an_evaluation_prints_a_line_for_each_score(trained):
    result = run("evaluate", trained[0], "--limit", 3)
    about, *lines = result.out.splitlines()
    scores = sl.open_run(trained[0]).evaluate(limit=3).scores
    assert about.startswith("3 ")
    assert [line.split()[0] for line in lines[: len(scores)]] == list(scores)
    assert result.err == ""


def test_an_evaluation_writes_its_files_and_says_their_paths(case, trained, tmp_path):
    result = run("evaluate", trained[0], "--limit", 3, "--json", "--out", tmp_path / "results")
    written = result.err.splitlines()[-len(list((tmp_path / "results").iterdir())) :]
    assert written[:3] == [
        str(tmp_path / "results" / name) for name in ("results.html", "scores.json", "predictions.json")
    ]
    assert set(written) == {str(path) for path in (tmp_path / "results").iterdir()}
    scores = json.loads((tmp_path / "results" / "scores.json").read_text())
    assert scores["scores"] == result.json
    rows = json.loads((tmp_path / "results" / "predictions.json").read_text())
    assert len(rows) == 3
    assert {"input", "prediction", "score", "references"} <= rows[0].keys()
    page = (tmp_path / "results" / "results.html").read_text()
    assert all(name in page for name in result.json)


def test_an_evaluation_in_python_is_that_of_the_command(trained):
    found = sl.open_run(trained[0]).evaluate(split="val", limit=5, batch_size=2)
    printed = run("evaluate", trained[0], "--split", "val", "--limit", 5, "--json").json
    assert found.to_json() == pytest.approx(printed, abs=1e-6)
    assert len(found.predictions) == 5
    assert all((p.references and p.attention is None) or p.attention for p in found.predictions)


def test_a_missing_split_is_answered_by_those_that_are_there(trained):
    sentence = refused(run("evaluate", trained[0], "--split", "nonsense"))
    assert "'nonsense'" in sentence
    assert "train" in sentence


# Predictions


def test_predictions_of_the_command_are_those_of_python(case, trained):
    task, opened = task_of(case.kind), sl.open_run(trained[0])
    found = list(opened.predict(case.inputs))
    printed = run(case.kind, trained[0], *case.inputs)
    assert printed.out.splitlines() == [line for p in found for line in task.lines(p)]
    as_json = run(case.kind, trained[0], *case.inputs, "--json")
    assert as_json.json == json.loads(json.dumps(task.predictions_json(found)))
    assert (printed.err, as_json.err) == ("", "")


def test_predictions_come_lazily_and_alike_in_any_batch(case, trained):
    opened, taken = sl.open_run(trained[0]), []

    def inputs():
        for given in itertools.islice(itertools.cycle(case.inputs), 5):
            taken.append(given)
            yield given

    lazily = opened.predict(inputs(), batch_size=2, attention=False)
    assert taken == []
    first = next(lazily)
    assert len(taken) == 2
    alone = next(opened.predict(case.inputs[:1], batch_size=1))
    assert (first.input, first.text) == (alone.input, alone.text)
    assert first.score == pytest.approx(alone.score, abs=1e-5)
    assert first.attention is None
    assert len([first, *lazily]) == 5


def test_a_prediction_says_what_it_looked_at(case, trained):
    (p,) = sl.open_run(trained[0]).predict(case.inputs[:1])
    assert (p.alternatives[0].text, p.alternatives[0].score) == (p.text, p.score)
    looked = p.attention
    layers, heads, t, s = looked.weights.shape
    assert (t, s) == (len(looked.queries), len(looked.keys))
    assert bool((looked.weights >= 0).all())
    one = looked.select(layer=layers - 1, head=heads - 1)
    assert one.weights.shape == (1, 1, t, s)
    torch.testing.assert_close(one.summary, looked.weights[-1, -1])


def test_a_run_is_opened_and_watched(case, trained):
    opened = sl.open_run(trained[0])
    assert (opened.kind, opened.folder, opened.device.type) == (case.kind, trained[0], "cpu")
    assert not opened.model.training
    seen = opened.watch(case.inputs[:1])
    assert len(seen.names()) > 0
    with pytest.raises(ValueError, match="unknown option 'no_such_option'"):
        opened.predict(case.inputs, no_such_option=1)
    with pytest.raises(ValueError, match="takes a list of inputs"):
        opened.predict(case.inputs[0])


# Looks


def test_a_look_is_a_table_an_object_a_figure_and_a_page(case, trained, tmp_path):
    folder, given = trained[0], case.inputs[0]
    (p,) = sl.open_run(folder).predict([given])
    table = run("look", folder, given)
    assert (table.code, table.err) == (0, "")
    assert p.text in table.out
    assert "entropy in nats" in table.out
    assert isinstance(run("look", folder, given, "--json").json, dict)
    for name in ("figure.png", "page.html"):
        result = run("look", folder, given, "--out", tmp_path / name)
        assert result.err == f"{tmp_path / name}\n"
    with Image.open(tmp_path / "figure.png") as figure:
        assert min(figure.size) > 100
    assert "<html" in (tmp_path / "page.html").read_text()


def test_predictions_are_drawn_into_a_folder_a_figure_or_a_page(case, trained, tmp_path):
    folder = trained[0]
    several = run(case.kind, folder, *case.inputs, "--out", tmp_path / "figures")
    assert several.err.splitlines() == [str(x) for x in sorted((tmp_path / "figures").iterdir())]
    one = run(case.kind, folder, case.inputs[0], "--layer", 0, "--head", 0, "--out", tmp_path / "one.png")
    assert one.err == f"{tmp_path / 'one.png'}\n"
    page = run(case.kind, folder, *case.inputs, "--out", tmp_path / "page.html")
    assert page.err == f"{tmp_path / 'page.html'}\n"
    sentence = refused(run(case.kind, folder, *case.inputs, "--out", tmp_path / "two.png"))
    assert "one figure shows one input" in sentence


# Folders that move


def test_a_moved_run_is_evaluated_from_anywhere(trained, tmp_path, monkeypatch):
    before = run("evaluate", trained[0], "--limit", 3, "--json").json
    shutil.copytree(trained[0], tmp_path / "moved" / "run")
    monkeypatch.chdir(tmp_path / "moved")
    assert run("evaluate", "run", "--limit", 3, "--json").json == before


@pytest.mark.parametrize("case", in_turn(case for case in CASES if case.folder), indirect=True)
def test_data_is_found_from_another_folder_and_again_after_a_move(case, tmp_path, monkeypatch):
    shutil.copytree(case.folder, tmp_path / "here" / "data")
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    training = run(*case.train_on("data", "run", "--epochs", "1"))
    assert training.code == 0, training.err
    monkeypatch.chdir(tmp_path / "there")
    split = ("--split", "all", "--json")
    before = run("evaluate", "../here/run", *split)
    assert before.code == 0, before.err
    shutil.move(tmp_path / "here" / "data", tmp_path / "there" / "data")
    sentence = refused(run("evaluate", "../here/run", *split))
    assert "is not there any more; say where it is now with --data" in sentence
    assert run("evaluate", "../here/run", "--data", "data", *split).json == before.json
    assert (
        run("train", case.kind, "--out", "../here/run", "--resume", "--data", "data", "--epochs", 2).code == 0
    )


# Help


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_fits_one_screen(case, flag, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    for words in (["train", case.kind], [case.kind], ["evaluate"], ["look"]):
        result = run(*words, flag)
        assert result.code == 0
        assert len(result.out.splitlines()) <= 60, " ".join(words)
        assert "<bool>" not in result.out


def test_help_all_shows_every_setting_under_its_heading(case, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    task, result = task_of(case.kind), run("train", case.kind, "--help-all")
    assert result.code == 0
    for part in task.parts:
        for field in dataclasses.fields(part.config):
            if field.name not in task.no_flags(part):
                assert f"--{part.prefix}{field.name}".replace("_", "-")[:25] in result.out
    common = run("train", case.kind, "--help").out
    assert "--keep" in common
    assert ("--positions" in common) == ("--positions" in result.out)
    headings = re.findall(r"^╭─ (\w+)", common, re.MULTILINE)
    assert [h for h in headings if h in {"Data", "Model", "Training", "Output"}] == [
        "Data",
        "Model",
        "Training",
        "Output",
    ]
