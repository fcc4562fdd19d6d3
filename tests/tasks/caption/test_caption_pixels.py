"""What a captioner's training does with pictures: kept grids, augmentation, those missing or broken."""

import dataclasses

import pytest
import torch

from sightline.data.augment import Augment
from sightline.data.tokens import BOS, PAD, UNK
from sightline.tasks.caption.data import CaptionData, open_captions
from sightline.tasks.caption.generate import generate_captions
from sightline.tasks.caption.pixels import Pixels, load_grids
from tests.tasks.caption.small_captioner import CPU, made, prepared, small_set


@pytest.fixture
def scaled(monkeypatch):
    """A network of one weight, which a test may change."""
    weight = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(weight.weight, 1.0)
    monkeypatch.setattr("sightline.tasks.caption.pixels.pretrained_network", lambda name: weight)
    monkeypatch.setattr(
        "sightline.tasks.caption.pixels.pretrained_grid",
        lambda net, images, size: net.weight * images.flatten(2).mT,
    )
    return weight


def test_other_weights_are_other_grids(scaled, tmp_path):
    captions = small_set(n=7)
    wishes = {"encoder": "none", "size": 16, "views": 1, "seed": 0, "device": CPU, "folder": str(tmp_path)}

    def seen():
        grids, _ = load_grids(captions, captions.records, **wishes, resident_bytes=1 << 30)
        return grids.take(None, torch.arange(7), None)

    before = seen()
    assert torch.equal(seen(), before)
    assert len(list(tmp_path.iterdir())) == 1
    with torch.no_grad():
        scaled.weight *= 1.5
    torch.testing.assert_close(seen().float(), 1.5 * before.float(), rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("augment", [Augment(), Augment(crop=0.3)])
def test_augmentation_that_has_no_effect_is_told(monkeypatch, caplog, augment):
    def kept(captions, records, **wishes):
        return Pixels(torch.zeros(len(records), 3, 16, 16, dtype=torch.uint8), Augment(), 0), list(records)

    monkeypatch.setattr("sightline.tasks.caption.objective.load_grids", kept)
    _, task = made(data=CaptionData(source="small", augment=augment))
    task.model = dataclasses.replace(task.model, encoder="efficientnet_lite0", image_size=224)
    for _ in range(2):  # a second stage says it no more
        task.prepare(CPU)
    said = caplog.text
    assert said.count("have no effect; --views keeps crops") == (augment != Augment())


@pytest.mark.parametrize("val_beam", [1, 3])
def test_validation_writes_what_evaluate_writes(val_beam):
    model, task = prepared(data=CaptionData(source="small", val_beam=val_beam))
    with torch.no_grad():
        model.decoder.bias[[PAD, BOS, UNK]] = 100.0
    model.eval()
    images = task.train_split.pictures.images[:5]
    written = task.write(model, task.train_split.pictures.take(None, torch.arange(5), None))
    found = generate_captions(model, task.tokenizer, images, beam=val_beam)
    assert written == [ranks[0].text for ranks in found]
    assert not any("<unk>" in text for text in written)


def test_a_broken_image_in_a_streamed_validation_is_left_out(monkeypatch):
    def score(texts, references):
        return {"n": float(len(texts)), "references": float(len(references))}

    model, task = prepared(captions=small_set(broken=(7, 21)), score=score)
    expected = task.evaluate(model.eval())
    monkeypatch.setattr("sightline.tasks.caption.objective._KEPT", 0)
    _, streamed = prepared(captions=small_set(broken=(7, 21)), score=score)
    found = streamed.evaluate(model)
    assert found == pytest.approx(expected, rel=1e-6)
    assert found["n"] == found["references"] == len(small_set().split("val")) - 2


@pytest.mark.bad_input
def test_a_streamed_validation_of_broken_images_alone(monkeypatch):
    monkeypatch.setattr("sightline.tasks.caption.objective._KEPT", 0)
    model, task = prepared(captions=small_set(n=23, broken=(0, 7, 14, 21)))
    with pytest.raises(ValueError, match="not one of 4 images of 'small' could be read"):
        task.evaluate(model.eval())


def test_missing_images_are_counted_and_named(tmp_path, caplog):
    rows = [f"{i}.png,a dog,train" for i in range(11)]
    (tmp_path / "captions.csv").write_text("\n".join(["image,caption,split", *rows]))
    for i in range(0, 11, 2):
        (tmp_path / f"{i}.png").write_bytes(b"never opened")
    captions = open_captions(CaptionData(source=str(tmp_path)))
    assert len(captions) == 6
    (record,) = caplog.records
    assert record.getMessage().endswith("are left out (5): '1.png', '3.png', '5.png' and 2 more")
