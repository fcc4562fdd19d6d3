import dataclasses
import json
import math

import pytest
import torch
import torch.nn.functional as F

from sightline.data.augment import Augment
from sightline.data.features import Features
from sightline.data.tokens import BOS, EOS, PAD, UNK, Tokenizer
from sightline.models.captioner import Captioner
from sightline.tasks.caption.data import CaptionData
from sightline.tasks.caption.loss import caption_loss
from sightline.tasks.caption.pixels import Grids, Pixels, load_grids
from sightline.train.loop import fit
from tests.tasks.caption.small_captioner import CPU, TRAIN, made, prepared, small_set


def test_ids_are_those_of_the_captions():
    _, task = prepared()
    records = task.train_split.records
    assert task.train_split.ids.shape[:2] == (len(records), 3)
    ids = task.train_split.ids[1]
    assert [task.tokenizer.decode(row.tolist()) for row in ids if row[0] != PAD] == [
        caption.lower() for caption in records[1].captions
    ]
    for row in ids:
        real = row[row != PAD]
        assert len(real) == 0 or (real[0] == BOS and real[-1] == EOS)


def test_a_caption_that_is_too_long_is_cut_and_has_no_end():
    _, task = made()
    task.model = dataclasses.replace(task.model, max_length=3)
    ids = task.encode(task.captions.split("train")[:5])
    assert ids.size(-1) == 4
    assert not (ids == EOS).any()


@pytest.mark.parametrize("decoder", ["transformer", "recurrent"])
def test_the_loss_against_a_loop_over_captions(decoder):
    train = dataclasses.replace(TRAIN, label_smoothing=0.1)
    model, task = prepared(decoder, train=train)
    model.eval()  # without the regulariser
    batch = task.load([3, 11, 4], 0)
    loss = task.loss(model, batch)
    total, terms = 0.0, 0
    images = task.train_split.pictures.take(None, torch.tensor([3, 11, 4]), torch.tensor(0))
    for image, rows in zip(images, batch.ids, strict=True):
        for row in rows:
            real = row[row != PAD]
            if len(real):
                logits = model(image[None], real[None, :-1])[0]
                total += F.cross_entropy(logits, real[1:], label_smoothing=0.1, reduction="sum").item()
                terms += len(real) - 1
    assert loss.terms.item() == terms
    assert loss.total.item() == pytest.approx(total, rel=1e-5)


def test_the_recurrent_decoder_is_asked_to_look_everywhere():
    model, task = prepared("recurrent")
    batch = task.load([3, 11, 4], 0)
    plain = task.loss(model.eval(), batch)
    urged = task.loss(model.train(), batch)
    images = task.model_inputs(model, batch).repeat_interleave(3, 0)
    _, received = model(images, batch.ids.flatten(0, 1)[:, :-1], return_received=True)
    torch.testing.assert_close(urged.total, plain.total)
    torch.testing.assert_close(urged.mean, model.regulariser(received))
    assert (plain.mean, urged.mean_count) == (None, 9)


def test_hidden_words_change_what_is_read_and_not_what_is_written():
    data = CaptionData(source="small", word_dropout=0.9)
    model, task = prepared(data=data)
    read = []
    model.decoder.register_forward_pre_hook(lambda _, args: read.append(args[1]))
    batch = task.load(range(7), 0)
    loss = task.loss(model, batch)
    assert (read[0][:, 1:] == UNK).sum() > (read[0][:, 1:] > UNK).sum()
    assert (read[0][:, 0] != UNK).all()
    assert loss.terms.item() == (batch.ids[:, :, 1:] != PAD).sum().item()
    task.evaluate(model.eval())
    assert not (read[-1] == UNK).any()


def test_two_passes_that_agree_cost_nothing_more():
    model, task = prepared(data=CaptionData(source="small", consistency=3.0))
    batch = task.load(range(7), 0)
    model.eval()  # without dropout both passes are the same
    images = task.model_inputs(model, batch)
    once, twice = caption_loss(model, images, batch.ids), task.loss(model, batch)
    torch.testing.assert_close(twice.total / twice.terms, once.total / once.terms)
    assert twice.terms == 2 * once.terms


def test_two_passes_that_differ_are_drawn_together():
    model, task = made(dropout=0.3)
    task.prepare(CPU)
    batch = task.load(range(7), 0)
    images = task.model_inputs(model, batch)
    torch.manual_seed(5)
    plain = caption_loss(model, torch.cat([images] * 2), torch.cat([batch.ids] * 2))
    torch.manual_seed(5)
    drawn = caption_loss(model, images, batch.ids, consistency=2.0)
    torch.manual_seed(5)
    logits = model.decoder(
        model.encode(torch.cat([images] * 2)), torch.cat([batch.ids] * 2).flatten(0, 1)[:, :-1]
    )
    one, other = logits.log_softmax(-1).chunk(2)
    both = F.kl_div(one, other, log_target=True, reduction="none") + F.kl_div(
        other, one, log_target=True, reduction="none"
    )
    apart = both.sum(-1)[batch.ids.flatten(0, 1)[:, 1:] != PAD].sum()
    torch.testing.assert_close(drawn.total, plain.total + 2.0 * apart)


def test_hidden_cells_are_zero_in_training_alone():
    model, task = prepared(data=CaptionData(source="small", cell_dropout=0.5))
    taken = []
    model.encode = lambda images: taken.append(images) or torch.zeros(len(images), 4, 16)
    grids = torch.ones(7, 4, 11)
    task.model_inputs = lambda model, batch: grids
    task.loss(model, task.load(range(7), 0))
    hidden = (taken[0] == 0).all(-1)
    assert 0 < hidden.sum() < hidden.numel()
    assert ((taken[0] == 1).all(-1) | hidden).all()


def test_fewer_captions_are_drawn_anew_each_epoch_and_are_real():
    _, task = prepared(data=CaptionData(source="small", captions=1))
    indices = list(range(len(task.train_split.records)))
    drawn = [task.load(indices, epoch).ids for epoch in range(9)]
    assert all(ids.shape[1] == 1 and (ids[:, 0, 0] == BOS).all() for ids in drawn)
    assert len({tuple(ids[:, 0, 1].tolist()) for ids in drawn}) > 1


def test_augmented_in_training_and_not_in_evaluation():
    model, task = prepared(data=CaptionData(source="small", augment=Augment(flip=0.5, shift=0.2)))
    batches = [task.load([5], epoch) for epoch in range(5)]
    seen = [task.model_inputs(model, batch) for batch in batches]
    assert any(not torch.equal(seen[0], other) for other in seen)
    assert torch.equal(seen[2], task.model_inputs(model, task.load([5], 2)))
    plain, again = (task.batch(task.train_split, range(5))[0] for _ in range(2))
    assert torch.equal(plain, again)


@pytest.mark.combinations
@pytest.mark.parametrize("decoder", ["transformer", "recurrent"])
@pytest.mark.parametrize("val_beam", [1, 2])
def test_a_small_set_is_learned_and_scored(tmp_path, decoder, val_beam):
    seen = []

    def score(texts, references):
        seen.append((texts, references))
        return {"calls": float(len(seen))}

    train = dataclasses.replace(TRAIN, epochs=16, metric="calls", evaluate_every=8, lr=2e-2)
    data = CaptionData(source="small", val_beam=val_beam)
    model, task = made(decoder, train=train, score=score, data=data)
    out = fit(model, task, train, tmp_path / "run", shown=False)
    texts, references = seen[-1]
    right = [text.split()[1] == known[0].split()[1] for text, known in zip(texts, references, strict=True)]
    assert sum(right) / len(right) > 0.8, list(zip(texts, references, strict=True))
    again = Captioner.load(out)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True))
    assert Tokenizer.load(out / "tokenizer.json").encode("red part") == task.tokenizer.encode("red part")
    assert json.loads((out / "config.json").read_text())["data"]["source"] == "small"


def test_broken_images_are_named_and_left_out(caplog, tmp_path):
    captions = small_set(broken=(3, 7, 8))
    model, task = made(captions=captions)
    fit(model, task, TRAIN, tmp_path / "run", shown=False)
    said = caplog.text
    assert said.count("it is left out") == 3
    assert "'8' can't be read" in said
    assert len(task.train_split.records) == len(captions.split("train")) - 2
    assert max(max(batch) for batch in task.plan(0)) == len(task.train_split.records) - 1


def test_streamed_is_the_same_as_kept(monkeypatch):
    _, kept = prepared()
    monkeypatch.setattr("sightline.tasks.caption.objective._KEPT", 0)
    model, streamed = prepared()
    batch = streamed.load([2, 9], 1)
    assert batch.pictures is not None
    assert torch.equal(streamed.model_inputs(model, batch), kept.model_inputs(model, kept.load([2, 9], 1)))


def test_a_broken_image_in_a_stream_is_named_once_and_teaches_nothing(monkeypatch, caplog):
    monkeypatch.setattr("sightline.tasks.caption.objective._KEPT", 0)
    model, task = prepared(captions=small_set(broken=(4,)))
    at = [record.name for record in task.train_split.records].index("4")
    for epoch in range(2):
        batch = task.load([at, 9, 2], epoch)
        assert batch.indices.tolist() == [9, 2]
        assert torch.equal(
            task.model_inputs(model, batch), task.model_inputs(model, task.load([9, 2], epoch))
        )
        assert torch.equal(batch.ids, task.load([9, 2], epoch).ids)
    alone = task.loss(model, task.load([at], 0))
    assert (alone.total.item(), alone.terms.item()) == (0.0, 0)
    assert [r.getMessage() for r in caplog.records] == [
        "the image '4' can't be read: it is text; it is left out"
    ]


def test_grids_take_the_first_view_in_evaluation_and_any_in_training():
    class Kept(Features):
        views, shape = 3, (2, 5)

        def __init__(self):
            """Nothing is on disk."""

        def whole(self, view):
            return torch.full((7, 2, 5), float(view))

        def grids(self, indices, views=0):
            views = [views] * len(indices) if isinstance(views, int) else views
            return torch.stack([torch.full((2, 5), float(v)) for v in views])

    for resident in (True, False):
        grids = Grids(Kept(), range(7), seed=0, resident=resident)
        indices = list(range(7))
        numbers = torch.tensor(indices)
        assert (grids.take(grids.load(indices, 0), numbers, None) == 0).all()
        views = [grids.take(grids.load(indices, e), numbers, torch.tensor(e))[:, 0, 0] for e in range(9)]
        assert set(torch.stack(views).flatten().tolist()) == {0.0, 1.0, 2.0}
        assert torch.equal(views[4], grids.take(grids.load(indices, 4), numbers, torch.tensor(4))[:, 0, 0])


@pytest.mark.parametrize("resident", [True, False])
def test_kept_grids_of_broken_pictures_are_left_out(monkeypatch, caplog, tmp_path, resident):
    monkeypatch.setattr("sightline.tasks.caption.pixels.pretrained_network", lambda name: torch.nn.Identity())
    monkeypatch.setattr(
        "sightline.tasks.caption.pixels.pretrained_grid", lambda net, images, size: images.flatten(2).mT
    )
    captions = small_set(n=23, broken=(3, 8))
    wishes = {"encoder": "none", "size": 16, "views": 2, "seed": 0, "device": CPU, "folder": str(tmp_path)}
    room = 1 << 30 if resident else 0
    grids, records = load_grids(captions, captions.records, **wishes, resident_bytes=room)
    assert [int(record.name) for record in records] == [i for i in range(23) if i not in (3, 8)]
    assert caplog.text.count("it is left out") == 2
    chosen = [0, 5, 20]
    expected = torch.stack([captions.open(records[i]).flatten(1).mT / 127.5 - 1 for i in chosen])
    taken = grids.take(grids.load(chosen, 0), torch.tensor(chosen), None)
    torch.testing.assert_close(taken.float(), expected, atol=1e-3, rtol=0)


def test_views_are_kept_of_the_train_split_alone(monkeypatch):
    views = {}

    def kept(captions, records, **wishes):
        views[records[0].split] = wishes["views"]
        return Pixels(torch.zeros(len(records), 3, 16, 16, dtype=torch.uint8), Augment(), 0), list(records)

    monkeypatch.setattr("sightline.tasks.caption.objective.load_grids", kept)
    _, task = made(data=CaptionData(source="small", views=5))
    task.model = dataclasses.replace(task.model, encoder="efficientnet_lite0", image_size=224)
    task.prepare(CPU)
    assert views == {"train": 5, "val": 1}


def test_without_a_scorer_there_is_the_loss():
    model, task = prepared()
    scores = task.evaluate(model.eval())
    assert scores.keys() == {"loss", "perplexity"}
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tokens": "letters"}, "unknown tokens 'letters'"),
        ({"vocabulary": 4}, "vocabulary must be above 4, got 4"),
        ({"val_beam": 0}, "val_beam must be at least 1, got 0"),
        ({"cell_dropout": -0.1}, "cell_dropout must be at least 0 and below 1, got -0.1"),
        ({"consistency": -1.0}, "consistency must be at least 0, got -1.0"),
        ({"word_dropout": 1.0}, "word_dropout must be at least 0 and below 1, got 1.0"),
        ({"augment": Augment(mixup=0.2)}, "mixup and cutmix must be 0"),
    ],
)
def test_data_settings_that_make_no_sense(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        CaptionData(**settings)
