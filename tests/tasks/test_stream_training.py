"""A training from shards that are streamed has the examples, the losses and the scores of a folder."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sightline.data.captions import read_captions
from sightline.data.classes import read_classes
from sightline.data.shard_readers import TarShard
from sightline.models.captioner import CaptionerConfig
from sightline.tasks.caption.data import CaptionData, learn_tokens
from sightline.tasks.caption.objective import CaptionObjective
from sightline.tasks.classify.data import ClassifyData
from sightline.tasks.classify.objective import ClassifyObjective
from sightline.train.config import TrainConfig
from sightline.train.stepping import Stepper
from tests.command import run
from tests.data.picture_files import png
from tests.data.shard_sets import as_shards, captioned, write_tar
from tests.data.test_shards_hostile import HOSTILE
from tests.tasks.cases import CASES
from tests.tasks.stream_program import BATCHES, BUFFER, words

pytestmark = pytest.mark.plain
TASKS = [case for case in CASES if case.name in {"caption", "classify"}]
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr("sightline.data.stream.BUFFER_BYTES", BUFFER)


def caption_objective(place, train):
    captions = read_captions(place)
    model = CaptionerConfig(vocab_size=9, image_size=16, patch=8, d_model=6, n_heads=2, n_layers=1, d_ff=7)
    data = CaptionData(captions=1)
    objective = CaptionObjective(captions, learn_tokens(captions, data), model, train, data)
    objective.prepare(CPU)
    return objective


def class_objective(place, train):
    images = read_classes(place, image_size=8, channels=1)
    objective = ClassifyObjective(images, train, ClassifyData(), score=lambda *_: {})
    objective.prepare(CPU)
    return objective


OBJECTIVES = {"caption": caption_objective, "classify": class_objective}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("form", ["tar", "parquet"])
@pytest.mark.parametrize("case", TASKS, ids=lambda case: case.name)
def test_each_epoch_has_every_example_once_and_each_is_that_of_the_folder(case, form, tmp_path):
    shards = as_shards(case.folder, case.kind, tmp_path / form, form, n=4)
    train = TrainConfig(batch_size=4, device="cpu", seed=3)
    streamed, plain = (OBJECTIVES[case.kind](x, train) for x in (shards, case.folder))
    assert streamed.stream is not None
    orders = []
    for epoch in range(3):
        plan = streamed.plan(epoch)
        order = []
        for places in plan:
            batch = streamed.load(places, epoch)
            alike = plain.load(batch.indices.tolist(), epoch)
            if case.kind == "caption":
                take = plain.train_split.pictures.take
                assert torch.equal(batch.ids, alike.ids)
                for when in (None, batch.epoch):
                    expected = take(alike.pictures, alike.indices, when)
                    assert torch.equal(take(batch.pictures, batch.indices, when), expected)
            else:
                assert torch.equal(batch.labels, alike.labels)
                assert torch.equal(batch.images, plain._split.images[batch.indices])
            order += batch.indices.tolist()
        assert [len(places) for places in plan[:-1]] == [4] * (len(plan) - 1)
        assert sorted(order) == list(range(len(order)))
        orders.append(order)
    assert len(order) == len(
        plain.images.split("train") if case.kind == "classify" else plain.captions.split("train")
    )
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert not any(order == sorted(order) for order in orders)
    other = OBJECTIVES[case.kind](shards, TrainConfig(batch_size=4, device="cpu", seed=4))
    assert [i for places in plan for i in other.load(places, 0).indices.tolist()] != orders[0]


def test_no_more_is_read_than_the_buffer_holds(tmp_path, monkeypatch):
    for number in range(3):
        write_tar(tmp_path / f"train-{number:06d}.tar", captioned(20, 20 * number))
    write_tar(tmp_path / "val-000000.tar", captioned(3))
    sizes = [len(png(i)) for i in range(60)]
    monkeypatch.setattr("sightline.data.stream.BUFFER_BYTES", sum(sizes) // 4)
    objective = caption_objective(tmp_path, TrainConfig(batch_size=4, device="cpu"))
    read, image = [], TarShard.image
    monkeypatch.setattr(TarShard, "image", lambda self, i: read.append(i) or image(self, i))
    held = 15
    plan = objective.plan(0)
    for number, places in enumerate(plan, 1):
        objective.load(places, 0)
        assert len(read) <= 4 * number + held + 3  # one ahead of each shard
    assert len(read) == 60
    objective.load(plan[14], 1)  # as a run that goes on inside an epoch: what comes before is read, not kept
    assert len(objective.stream._held) <= 8 * 4
    first = objective.load(plan[0], 1)  # again from the start
    assert first.indices.tolist() == objective.load(plan[0], 1).indices.tolist()


def test_threads_that_ask_ahead_of_each_other_get_what_is_theirs(tmp_path):
    write_tar(tmp_path / "train-000000.tar", captioned(30))
    write_tar(tmp_path / "val-000000.tar", captioned(3))
    objective = caption_objective(tmp_path, TrainConfig(batch_size=3, device="cpu"))
    plan = objective.plan(0)
    expected = [objective.load(places, 0).indices.tolist() for places in plan]
    asked = [1, 0, 3, 2, 5, 7, 6, 4, 9, 8]
    got = {i: objective.load(plan[i], 1).indices.tolist() for i in asked}
    objective.load(plan[0], 0)  # of another epoch
    assert [objective.load(plan[i], 1).indices.tolist() for i in range(10)] == [got[i] for i in range(10)]
    assert [objective.load(places, 0).indices.tolist() for places in plan] == expected


@pytest.mark.parametrize("case", TASKS, ids=lambda case: case.name)
@pytest.mark.parametrize("where", ["at the end of an epoch", "inside an epoch"])
def test_a_stopped_training_goes_on_to_the_bit(case, where, tmp_path, monkeypatch):
    shards = as_shards(case.folder, case.kind, tmp_path / "shards")

    def train(out, *more):
        result = run(*words(case, shards, tmp_path / out, 5), *more)
        assert result.code == 0, result.err
        return load_file(tmp_path / out / "model.safetensors")

    whole = train("whole")
    rows = (tmp_path / "whole/metrics.csv").read_text().splitlines()
    steps = int(rows[-1].split(",")[0]) // 4  # of an epoch, of four
    assert steps > 2
    stop = 2 * steps if where == "at the end of an epoch" else steps + 2
    step = Stepper.step

    def stopped(self, parts, **about):
        if about["step"] == stop:
            raise RuntimeError("the power fails")
        return step(self, parts, **about)

    monkeypatch.setattr(Stepper, "step", stopped)
    with pytest.raises(RuntimeError, match="the power fails"):
        train("killed")
    monkeypatch.setattr(Stepper, "step", step)
    assert same(train("killed", "--resume"), whole)
    assert (tmp_path / "killed/metrics.csv").read_text().splitlines() == rows


def test_mixed_images_come_from_the_same_batch(tmp_path):
    case = next(case for case in TASKS if case.kind == "classify")
    shards = as_shards(case.folder, case.kind, tmp_path / "shards")
    result = run(*words(case, shards, tmp_path / "run", 5), "--mixup", "0.8")
    assert result.code == 0, result.err
    objective = class_objective(shards, TrainConfig(batch_size=5, device="cpu"))
    objective.augment = objective.augment.__class__(mixup=0.8)
    batch = objective.load(objective.plan(0)[0], 0)
    assert {*batch.others.tolist()} <= {*batch.indices.tolist()}
    rows = [batch.indices.tolist().index(i) for i in batch.others.tolist()]
    assert torch.equal(batch.other_images, batch.images[rows])
    assert torch.equal(batch.other_labels, batch.labels[rows])


@pytest.mark.bad_input
@pytest.mark.parametrize("member", HOSTILE)
def test_a_hostile_member_teaches_nothing(tmp_path, member):
    write_tar(tmp_path / "train-000000.tar", HOSTILE[member][0])
    write_tar(tmp_path / "train-000001.tar", captioned(5, 11))
    write_tar(tmp_path / "val-000000.tar", captioned(2))
    objective = caption_objective(tmp_path, TrainConfig(batch_size=2, device="cpu"))
    found = [i for places in objective.plan(0) for i in objective.load(places, 0).indices.tolist()]
    assert objective.stream is not None
    assert sorted(found) == (
        [0, 2, 3, 4, 5, 6] if member == "a key again" else list(range(6))
    )  # its own is empty


@pytest.mark.bad_input
def test_an_image_that_can_not_be_read_is_told_and_left_out(tmp_path, caplog):
    members = [*captioned(7)]
    members[4] = ("0002.png", b"no image")
    path = write_tar(tmp_path / "train-000000.tar", members)
    write_tar(tmp_path / "val-000000.tar", captioned(2))
    objective = caption_objective(tmp_path, TrainConfig(batch_size=7, device="cpu"))
    assert sorted(objective.load(range(7), 0).indices.tolist()) == [0, 1, 3, 4, 5, 6]
    with path.open("r+b") as file:  # a copy that goes on while it is read
        file.truncate(path.stat().st_size // 2)
    assert len(objective.load(range(7), 1).indices) < 6
    said = [record.message for record in caplog.records]
    assert any("'train-000000.tar/2' is not an image that can be read" in line for line in said), said
    assert any("the image 'train-000000.tar/6' can't be read: " in line for line in said), said


@pytest.mark.bad_input
def test_without_the_extra_a_sentence_names_it(tmp_path, monkeypatch):
    case = TASKS[0]
    shards = as_shards(case.folder, case.kind, tmp_path / "shards")
    monkeypatch.setitem(sys.modules, "datasets", None)
    refused = run(*words(case, shards, tmp_path / "run", 5))
    assert refused.code == 2
    said = r"streaming .* from '.*shards' needs datasets, which is not installed; "
    assert re.search(said + re.escape("pip install 'sightline[stream]'"), refused.err), refused.err
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr("sightline.data.stream.BUFFER_BYTES", 1 << 28)
    assert run(*words(case, shards, tmp_path / "run", 5)).code == 0  # it is small enough


# Several processes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("streams")


@pytest.fixture(scope="module")
def groups(folder):
    done = subprocess.run(  # noqa: S603
        [sys.executable, Path(__file__).with_name("stream_program.py"), folder],
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
        env=os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR", "SIGHTLINE_CACHE": str(folder / "cache")},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def assert_same_run(one, other):
    """Equal losses of steps and scores of epochs, but for the order in which sums are taken."""
    curves = [(x / "metrics.csv").read_text().splitlines() for x in (one, other)]
    assert curves[0][0] == curves[1][0]
    assert len(curves[0]) == len(curves[1]) > 4
    for a, b in zip(*curves, strict=True):
        if a != curves[0][0]:
            numbers = [[float(x) if x else 0.0 for x in row.split(",")] for row in (a, b)]
            torch.testing.assert_close(*map(torch.tensor, numbers), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", TASKS, ids=lambda case: case.name)
def test_losses_are_those_of_a_folder_in_one_process_and_in_two(case, groups, folder, tmp_path):
    """A batch of all examples has the same loss whatever their order."""
    for size in ("some", "all"):
        ended = groups[f"{case.name} {size}"]
        assert ended["codes"] == [0, 0], ended["lines"]
        shards = folder / f"{case.name} shards"
        assert run(*words(case, shards, tmp_path / size, BATCHES[size])).code == 0
        assert_same_run(tmp_path / size, folder / f"{case.name} {size}")
    assert run(*words(case, case.folder, tmp_path / "plain", BATCHES["all"])).code == 0
    assert_same_run(tmp_path / "plain", tmp_path / "all")


@pytest.mark.bad_input
def test_a_batch_that_has_no_equal_shares_is_refused(groups):
    for case in TASKS:
        refused = groups[f"{case.name} five"]
        assert refused["codes"] == [2, 2]
        assert len(refused["lines"]) == 1, refused["lines"]
        assert "got batch_size=5 for 2 of them; choose a multiple of 2" in refused["lines"][0]
