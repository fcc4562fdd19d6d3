"""The task of classification: what it learns, and that nothing depends on the batch."""

import dataclasses
import json

import pytest
import torch
import torch.nn.functional as F

from sightline.data.augment import Augment, as_floats
from sightline.data.class_set import ClassSet, LabelledImages
from sightline.evaluate.classes import score
from sightline.models.vit import VisionTransformer, VisionTransformerConfig
from sightline.tasks import task_of
from sightline.tasks.classify.data import ClassifyData, open_classes
from sightline.tasks.classify.objective import ClassifyObjective
from sightline.tasks.configure import Request, configure
from sightline.train.config import TrainConfig
from sightline.train.loop import fit

TRAIN = TrainConfig(epochs=2, batch_size=7, lr=3e-3, tensorboard=False, threads=0, metric="accuracy")


def bars(n, seed):
    """Upright and lying bars on noise: two classes that any classifier tells apart."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 60, (n, 1, 6, 6), generator=generator, dtype=torch.uint8)
    labels = torch.arange(n) % 2
    for image, label in zip(images, labels, strict=True):
        at = int(torch.randint(0, 6, (), generator=generator))
        image[0, at, :] = 255 if label else image[0, at, :]
        image[0, :, at] = image[0, :, at] if label else 255
    return LabelledImages(images, labels)


def a_set():
    return ClassSet(("upright", "lying"), {"train": bars(60, 0), "val": bars(20, 1), "test": bars(20, 2)})


def task(train=TRAIN, augment=None):
    return ClassifyObjective(a_set(), train, ClassifyData(augment=augment or Augment()), score=score)


def model(seed=0):
    torch.manual_seed(seed)
    return VisionTransformer(
        VisionTransformerConfig(
            n_classes=2, channels=1, image_size=6, patch=2, d_model=16, n_heads=2, n_layers=1, d_ff=16
        )
    )


def test_it_learns_and_leaves_a_run(tmp_path):
    config = TrainConfig(epochs=25, batch_size=10, lr=5e-3, tensorboard=False, threads=0, metric="accuracy")
    trained = model()
    fit(trained, task(config), config, tmp_path / "run", shown=False)
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["kind"] == "classify"
    assert saved["data"]["names"] == ["upright", "lying"]
    test = bars(40, 9)
    found = VisionTransformer.load(tmp_path / "run").predict(test.images)
    assert score(found, test.labels)["accuracy"] > 0.9


def test_the_loss_is_cross_entropy_of_the_sum():
    chosen, made = task(), model()
    torch.nn.init.normal_(made.head.weight)
    chosen.prepare(torch.device("cpu"))
    found = chosen.loss(made, chosen.load([3, 11, 4], 0))
    part = a_set().split("train").select(torch.tensor([3, 11, 4]))
    expected = F.cross_entropy(made(as_floats(part.images)), part.labels, reduction="sum")
    torch.testing.assert_close(found.total, expected)
    assert found.terms == 3


@pytest.mark.parametrize("augment", [Augment(), Augment(flip=0.5, shift=0.2, mixup=0.5, cutmix=1.0)])
@pytest.mark.parametrize("resident", [True, False])
def test_a_loss_is_the_sum_over_its_examples_in_whichever_batch_and_wherever_the_bytes_lie(augment, resident):
    chosen, made = task(augment=augment), model()
    torch.nn.init.normal_(made.head.weight)
    if resident:
        chosen.prepare(torch.device("cpu"))
    indices = [5, 2, 41, 17]
    whole = chosen.loss(made, chosen.load(indices, 3)).total
    alone = sum(chosen.loss(made, chosen.load([i], 3)).total for i in indices)
    torch.testing.assert_close(whole, alone, rtol=1e-4, atol=1e-4)
    other = task(augment=augment)
    other.prepare(torch.device("cpu"))
    torch.testing.assert_close(other.loss(made, other.load(indices, 3)).total, whole)
    if augment.mixes:
        assert not torch.allclose(chosen.loss(made, chosen.load(indices, 4)).total, whole)


def test_batches_are_whole_where_there_are_many():
    few = task(TrainConfig(batch_size=13, tensorboard=False)).plan(0)
    assert sorted(len(batch) for batch in few) == [8, 13, 13, 13, 13]
    assert [len(batch) for batch in task().plan(0)] == [7] * 8
    many = task(TrainConfig(batch_size=5, tensorboard=False)).plan(1)
    assert {len(batch) for batch in many} == {5}
    assert len(many) == 12


def test_presets_are_settings_that_fit():
    classify = task_of("classify")
    assert {"digits", "fashion", "tiny", "vit_b16", "default"} <= set(classify.presets)
    for name in classify.presets:
        found = configure(classify, Request(data="digits", preset=name))
        assert set(found) == {"model", "data", "train"}


def test_the_digits_have_a_name():
    assert len(open_classes(ClassifyData(source="digits", fold=2), {}).names) == 10


@pytest.mark.bad_input
def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"8 x 8 pixels.*image_size=16"):
        open_classes(ClassifyData(source="digits"), {"image_size": 16})
    with pytest.raises(ValueError, match=r"views .*got 3"):
        ClassifyData(views=3)
    with pytest.raises(ValueError, match=r"val must be at least 0 and below 1, got 1\.5"):
        ClassifyData(val=1.5)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_a_mixed_image_is_judged_by_both_its_classes(smoothing):
    config = dataclasses.replace(TRAIN, label_smoothing=smoothing)
    chosen, made = task(config, augment=Augment(mixup=1.0)), model()
    torch.nn.init.normal_(made.head.weight)
    chosen.prepare(torch.device("cpu"))
    batch = chosen.load(list(range(30)), 0)
    images, share = chosen.augmented(batch)
    with torch.no_grad():
        log_probs = made(images).log_softmax(-1)
        found = chosen.loss(made, batch).total
    both = (F.one_hot(y, 2) for y in (batch.labels, batch.other_labels))
    own, other = (one * (1 - smoothing) + smoothing / 2 for one in both)
    wanted = share[:, None] * own + (1 - share[:, None]) * other
    assert 0.2 < float(share.mean()) < 0.8
    assert not torch.equal(batch.labels, batch.other_labels)
    torch.testing.assert_close(found, -(wanted * log_probs).sum())


def test_a_run_that_was_stopped_ends_the_same_with_all_that_is_random(tmp_path):
    config = dataclasses.replace(TRAIN, epochs=3, save_steps=3, ema=0.9, label_smoothing=0.1)
    augment = Augment(flip=0.5, shift=0.2, erase=0.5, mixup=0.5, cutmix=1.0)

    class StopError(Exception):
        pass

    class Stopping(ClassifyObjective):
        def load(self, indices, epoch):
            if (epoch, indices) == (1, self.plan(1)[5]):
                raise StopError
            return super().load(indices, epoch)

    def train(out, kind, *, resume=False):
        made = model(seed=5)
        made.dropout.p, made.layers[0].drop_path = 0.2, 0.5
        chosen = kind(a_set(), config, ClassifyData(augment=augment), score=score)
        fit(made, chosen, config, out, resume=resume, shown=False)
        return (out / "model.safetensors").read_bytes()

    whole = train(tmp_path / "whole", ClassifyObjective)
    with pytest.raises(StopError):
        train(tmp_path / "cut", Stopping)
    assert (tmp_path / "cut" / "checkpoints" / "main").is_dir()
    assert train(tmp_path / "cut", ClassifyObjective, resume=True) == whole


def test_a_partner_is_changed_in_its_own_way():
    chosen = task(augment=Augment(shift=0.3, mixup=1.0))
    chosen.prepare(torch.device("cpu"))
    batch = chosen.load(list(range(30)), 0)
    batch = dataclasses.replace(batch, others=batch.indices)
    alone = dataclasses.replace(batch, others=None)
    assert not torch.equal(chosen.augmented(batch)[0], chosen.augmented(alone)[0])


def test_what_is_chosen_by_are_the_views_of_the_val_split():
    seen = []
    chosen = ClassifyObjective(
        a_set(), TRAIN, ClassifyData(views=2), score=lambda *given: seen.append(given) or {"n": 1.0}
    )
    made = model().eval()
    torch.nn.init.normal_(made.head.weight)
    assert chosen.evaluate(made) == {"n": 1.0}
    ((logits, labels),) = seen
    val = a_set().split("val")
    torch.testing.assert_close(logits, made.predict(val.images, views=2))
    assert torch.equal(labels, val.labels)


def test_a_run_says_how_many_images_each_split_had():
    assert task().data()["counts"] == [60, 20, 20]
