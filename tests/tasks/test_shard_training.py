"""A training from shards is that from a folder: the same examples, batches, weights and scores."""

import pytest
import torch
from safetensors.torch import load_file

from sightline.data.classes import read_classes
from sightline.models.vit import VisionTransformer, VisionTransformerConfig
from sightline.tasks.classify.data import ClassifyData
from sightline.tasks.classify.objective import ClassifyObjective
from sightline.tasks.classify.predict import Classifier
from sightline.train.config import TrainConfig
from tests.command import run
from tests.data.picture_files import png
from tests.data.shard_sets import as_shards, write_tar
from tests.tasks.cases import CASES

pytestmark = pytest.mark.plain
TASKS = [case for case in CASES if case.name in {"classify", "caption", "translate"}]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path_factory.mktemp("cache")))


def trained(case, data, out, *more):
    result = run(*case.train_on(data, out, "--batch-size", "5", *more))
    assert result.code == 0, result.err
    return load_file(out / "model.safetensors")


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("case", TASKS, ids=lambda case: case.name)
def test_weights_and_scores_are_those_of_a_folder(case, tmp_path):
    plain = trained(case, case.folder, tmp_path / "folder")
    scores = run("evaluate", tmp_path / "folder", "--json").json
    checked = run("data", "check", case.folder, "--json").json
    curve = (tmp_path / "folder/metrics.csv").read_bytes()
    for form in ("tar", "parquet"):
        shards, out = as_shards(case.folder, case.kind, tmp_path / form, form), tmp_path / f"run-{form}"
        assert len(list(shards.glob(f"train-*.{form}"))) > 1
        assert same(trained(case, shards, out), plain)
        assert (out / "metrics.csv").read_bytes() == curve
        assert run("evaluate", out, "--json").json == scores
        assert run("evaluate", tmp_path / "folder", "--data", shards, "--json").json == scores
        assert run("data", "check", shards, "--json").json["splits"] == checked["splits"]


def test_an_image_that_can_not_be_read_teaches_nothing_and_is_not_scored(tmp_path):
    members = [(f"{i}.{end}", x) for i in range(5) for end, x in (("png", png(i)), ("cls", b"%d" % (i % 2)))]
    members[4] = ("2.png", b"no image")
    for split in ("train", "val", "test"):
        write_tar(tmp_path / f"{split}-000000.tar", members)
    images = read_classes(tmp_path, image_size=8, channels=1)
    train = TrainConfig(batch_size=5)
    objective = ClassifyObjective(images, train, ClassifyData(), score=lambda _, labels: {"n": len(labels)})
    objective.prepare(torch.device("cpu"))
    batch = objective.load([0, 2, 4], epoch=0)
    assert batch.labels.tolist() == [0, -100, 0]
    sizes = {"image_size": 8, "channels": 1, "patch": 4, "d_model": 8, "n_heads": 2, "n_layers": 1}
    model = VisionTransformer.build(VisionTransformerConfig(**sizes, n_classes=2)).eval()
    loss, alone = objective.loss(model, batch), objective.loss(model, objective.load([0, 4], epoch=0))
    assert loss.terms.item() == 2
    torch.testing.assert_close(loss.total, alone.total)
    assert objective.evaluate(model) == {"n": 4}
    examples = Classifier(model, ClassifyData(names=("0", "1"))).examples(images, "test", None)
    assert [example.input for example in examples] == ["test 0", "test 1", "test 3", "test 4"]
