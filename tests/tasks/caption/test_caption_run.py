"""A captioner's run from Python: captions, what they looked at, every layer, and scores."""

import dataclasses

import pytest
import torch
from torch.testing import assert_close

import sightline as sl
from sightline.data.captions import read_captions
from sightline.data.images import read_image
from sightline.data.scenes import scenes_set
from sightline.evaluate.captions import score
from sightline.evaluate.scenes import scene_scores
from sightline.models.manifest import drop_manifest
from sightline.tasks.attention import Grid
from sightline.tasks.caption.attention import word_attention
from sightline.tasks.caption.generate import Caption, generate_captions
from sightline.tasks.caption.predict import CaptionOptions, look_json, prediction_lines, predictions_json
from tests.tasks.caption.caption_runs import make_data, make_run

NAMES = ("run", "recurrent", "layers", "encoder")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions")
    make_data(folder / "data")
    make_run(folder / "run", folder / "data")
    make_run(folder / "recurrent", folder / "data", decoder="recurrent", d_hidden=13)
    make_run(folder / "layers", folder / "data", look_layer=None)
    make_run(folder / "encoder", folder / "data", n_encoder_layers=1, look_layer=0)
    make_run(folder / "scenes", "scenes", look_layer=None, n_test=5)
    return folder


def open_run(place, name):
    return sl.open_run(place / name, "cpu")


def paths(place, n=5):
    return [place / "data" / f"{i}.png" for i in range(n)]


def direct(run, place, **options):
    """What the model writes, asked directly."""
    images = torch.stack([read_image(path, size=24) for path in paths(place)])
    return list(generate_captions(run.model, run.predictor.tokenizer, images, **options))


@pytest.mark.parametrize("name", NAMES)
def test_predictions_are_the_captions_in_order_whatever_the_batch(place, name):
    run = open_run(place, name)
    found = list(run.predict(paths(place), beam=3, n_best=2, batch_size=2))
    expected = direct(run, place, beam=3, n_best=2)
    assert [p.input for p in found] == paths(place)
    for p, ranked in zip(found, expected, strict=True):
        assert [a.text for a in p.alternatives] == [one.text for one in ranked]
        assert [a.score for a in p.alternatives] == pytest.approx([one.score for one in ranked])
        assert (p.text, p.score) == p.alternatives[0]
        assert p.attention.queries == ranked[0].words
    assert all(p.attention is None for p in run.predict(paths(place), attention=False))


@pytest.mark.parametrize("name", NAMES)
def test_the_summary_is_the_mean_of_what_the_config_shows(place, name):
    run = open_run(place, name)
    shown = direct(run, place, look=True)  # the layer of the config, or all
    for p, (caption,) in zip(run.predict(paths(place)), shown, strict=True):
        assert_close(p.attention.summary, caption.weights.mean(1))
        assert isinstance(p.attention.keys, Grid)
        assert torch.equal(p.attention.keys.image, read_image(p.input, size=24))
    n_layers, n_heads = p.attention.weights.shape[:2]
    assert (n_layers, n_heads) == ((1, 1) if name == "recurrent" else (2, 3))
    labels = {
        "run": "mean of 3 heads of layer 1",
        "layers": "mean of 6 heads, 3 per layer",
        "encoder": "mean of 3 heads of layer 0",
        "recurrent": "",
    }
    assert p.attention.summary_label == labels[name]


def test_every_layer_is_there_whichever_is_shown(place):
    one, all_of_them = open_run(place, "run"), open_run(place, "layers")
    for a, b in zip(one.predict(paths(place)), all_of_them.predict(paths(place)), strict=True):
        assert_close(a.attention.weights, b.attention.weights)
        assert_close(a.attention.select(layer=1).summary, a.attention.summary)


@pytest.mark.parametrize("name", NAMES)
def test_the_layers_of_a_prediction_are_those_it_was_made_with(place, name):
    run = open_run(place, name)
    (p,) = run.predict(paths(place, 1))
    layers = run.layers(p)
    cross = [a for n, a in layers.items() if n.endswith(("multihead_attn", "decoder.score"))]
    written = len(p.attention.queries)
    assert len(cross) == len(p.attention.weights)
    for found, weights in zip(cross, p.attention.weights, strict=True):
        assert found.queries[:written] == p.attention.queries
        assert_close(found.weights[0][:, :written], weights)
    for layer, found in layers.items():
        assert_close(found.weights.sum(-1), torch.ones(found.weights.shape[:-1]))
        if layer.startswith("encoder"):
            assert found.queries == found.keys.names()
            assert found.queries[:4] == ("0,0", "0,1", "0,2", "1,0")
        elif layer.endswith("self_attn"):
            assert found.queries == found.keys
            assert found.queries[0] == "<bos>"
            assert not found.weights[0].triu(1).any()
    assert any(n.startswith("encoder") for n in layers) == (name == "encoder")
    text_alone = dataclasses.replace(p, attention=None)
    for layer, found in run.layers(text_alone).items():
        assert_close(found.weights, layers[layer].weights)


def test_watch_is_teacher_forced_by_the_captions(place):
    run = open_run(place, "encoder")
    seen = run.watch(paths(place, 3))
    longest = max(len(p.attention.ids) for p in run.predict(paths(place, 3)))
    assert len(seen.names()) == 1 + 2 * 2
    for name in seen.names():
        assert seen[name].t == (9 if name.startswith("encoder") else min(longest + 1, 7))
    p = next(iter(run.predict(paths(place, 1))))
    sight = run.watch(paths(place, 1))["decoder.layers.layers.1.multihead_attn"]
    assert_close(sight.rows(range(len(p.attention.queries)))[0], p.attention.weights[1])


def test_evaluate_scores_the_captions_of_the_split(place):
    run = open_run(place, "run")
    result = run.evaluate("test", beam=2, batch_size=2)
    references = [record.captions for record in read_captions(place / "data").split("test")]
    expected = score([ranked[0].text for ranked in direct(run, place, beam=2)], references)
    assert dict(result.scores) == pytest.approx(expected)
    assert result.about.startswith("5 images of split 'test' of ")
    assert result.about.endswith(", beam 2")
    assert [p.references for p in result.predictions] == references
    assert all(list(p.metrics) == ["cider"] for p in result.predictions)
    assert len(set(result.signatures.values())) == 2  # cider has one of its own


def test_scenes_are_scored_by_what_is_in_them(place):
    run = open_run(place, "scenes")
    result = run.evaluate("test")
    assert list(result.scores)[6:] == ["attribute_accuracy", "grounding", "grounding_chance"]
    dataset = run.dataset()
    scenes = [dataset.images.scene(p.input) for p in result.predictions]
    found = scene_scores(
        [p.attention.queries for p in result.predictions],
        [p.attention.weights.flatten(0, 1).transpose(0, 1) for p in result.predictions],
        scenes,
        run.model.grid,
    ).total
    assert result.scores["grounding_chance"] == pytest.approx(found["grounding_chance"])
    assert result.scores["grounding"] == pytest.approx(found["grounding"])


def test_boxes_are_in_pixels_of_what_the_model_saw(place):
    model = open_run(place, "run").model
    scenes = scenes_set(1, 1, 1)
    record = scenes.split("test")[0]
    words = tuple(record.captions[0].lower().strip(".").split())
    caption = Caption(" ".join(words), words, torch.full((len(words), 6, 9), 1 / 9), 0.0)
    scene = scenes.images.scene(record.name)
    image = torch.zeros(3, 24, 24, dtype=torch.uint8)
    boxes = word_attention(model, image, caption, scene).keys.boxes
    assert boxes
    assert set(boxes.values()) <= {tuple(side * 24 / 64 for side in thing.box) for thing in scene.objects}
    assert not word_attention(model, image, caption).keys.boxes


def test_broken_images_are_logged_and_left_out(place, tmp_path, caplog):
    other = make_data(tmp_path / "other", n=3)
    (other / "1.png").write_text("no picture")
    result = open_run(place, "run").evaluate(data=other)
    assert [p.input for p in result.predictions] == ["0.png", "2.png"]
    assert "1.png' is not an image that can be read; it is text; it is left out" in caplog.text


def test_two_batches_do_not_sample_alike(place):
    run = open_run(place, "run")
    twice = [paths(place)[0]] * 2
    one, other = run.predict(twice, batch_size=1, n_best=7, temperature=1.5)
    assert one.alternatives != other.alternatives
    again = list(run.predict(twice, batch_size=1, n_best=7, seed=0, temperature=1.5))
    assert [p.alternatives for p in again] == [one.alternatives, other.alternatives]


def test_what_is_printed(place):
    run = open_run(place, "run")
    (p,) = run.predict(paths(place, 1))
    assert prediction_lines(p) == [f"{p.input}: {p.text}"]
    (p,) = run.predict(paths(place, 1), n_best=3)
    assert prediction_lines(p) == [f"{p.input}: {text} ({score:.3f})" for text, score in p.alternatives]
    (row,) = predictions_json([p])["captions"]
    assert list(row) == ["image", "caption", "n_best"]
    assert row["n_best"] == [{"caption": text, "score": score} for text, score in p.alternatives]


@pytest.mark.parametrize("name", ["run", "layers", "recurrent"])
def test_look_as_json(place, name):
    run = open_run(place, name)
    (p,) = run.predict(paths(place, 1))
    found = look_json(p, run.layers(p))
    assert list(found) == ["image", "caption", "words", "grid", "weights"]
    (caption,) = direct(run, place, look=True)[0]
    assert_close(torch.tensor(found["weights"]), caption.weights)
    assert (found["words"], found["grid"]) == (list(caption.words), [3, 3])
    some = dict(list(run.layers(p).items())[:1])
    if name != "recurrent":  # which has no other
        (of_layer,) = look_json(p, some)["layers"].values()
        assert_close(torch.tensor(of_layer["weights"]), next(iter(some.values())).weights[0])
        assert of_layer["queries"][0] == "<bos>"
    chosen = p.attention.select(layer=0)
    found = look_json(p, {"layer 0": chosen})
    assert_close(torch.tensor(found["weights"]), chosen.weights[0].transpose(0, 1))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"beam": 3, "top_k": 5}, "searched for or sampled, got beam=3 and top_k=5; leave one out"),
        ({"beam": 0}, "beam must be at least 1, got 0"),
        ({"n_best": 6}, "n_best must be between 1 and beam 5, got 6; widen the beam"),
        ({"n_best": 0, "seed": 1}, "n_best must be at least 1, got 0"),
        ({"temperature": float("inf")}, "temperature must be a finite number, got inf"),
        ({"seed": -1}, r"seed must be at least 0 and below 2 \*\* 63, got -1"),
    ],
)
def test_options_that_make_no_sense(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        CaptionOptions(**options)


@pytest.mark.bad_input
def test_a_tokenizer_of_another_run(place, tmp_path):
    folder = make_run(tmp_path / "run", place / "data", lines=1)
    drop_manifest(folder)
    (folder / "tokenizer.json").write_bytes((place / "run" / "tokenizer.json").read_bytes())
    with pytest.raises(ValueError, match=r"tokenizer in .* has \d+ tokens and its model 11; the two files"):
        sl.open_run(folder, "cpu")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"there is no tokenizer\.json in .*; was the run copied whole"):
        sl.open_run(folder, "cpu")
