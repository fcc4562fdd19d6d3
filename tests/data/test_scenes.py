"""Scenes are the same everywhere, true to their captions, and no guesswork."""

import hashlib
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.data.counter_rng import CounterRNG
from sightline.data.scenes import Relation, SceneImages, Scenes, scenes_set
from sightline.data.scenes_draw import draw
from sightline.data.scenes_layout import random_layout
from sightline.data.scenes_words import (
    COLOURS,
    OPPOSITES,
    RELATIONS,
    SHAPES,
    SIZES,
    TEMPLATES,
    TEXTURES,
    names_of,
    parse_caption,
    phrases_of,
    sentence,
)

N = 211


@pytest.fixture(scope="module")
def scenes():
    return Scenes(N, seed=3, split="val")


def test_the_same_to_the_bit_on_every_machine():
    drawn = Scenes(70, seed=7, split="test")
    pixels = hashlib.sha256(b"".join(drawn.open(i).numpy().tobytes() for i in range(70))).hexdigest()
    words = hashlib.sha256("\n".join(c for i in range(70) for c in drawn.captions(i)).encode()).hexdigest()
    assert (pixels[:16], words[:16]) == ("57dd73836471e910", "e5e05dc84bfd09f6")


def test_a_scene_depends_on_its_number_alone(scenes):
    fewer = Scenes(N - 66, seed=3, split="val")
    for i in (N - 67, 0, 64, 63):
        assert torch.equal(fewer.open(i), scenes.open(i))
        assert fewer.captions(i) == scenes.captions(i)
        assert fewer.scene(i) == scenes.scene(i)


def test_other_seeds_and_splits_have_other_scenes(scenes):
    known = {scenes.open(i).numpy().tobytes() for i in range(N)}
    assert len(known) == N
    for seed, split in ((3, "train"), (3, "test"), (4, "val"), (-1, "val"), (2**70, "val")):
        others = Scenes(N, seed=seed, split=split)
        assert not known & {others.open(i).numpy().tobytes() for i in range(N)}


def test_a_picture_is_the_callers_own(scenes):
    scenes.open(5).zero_()
    assert scenes.open(5).any()


def test_five_captions_all_different_and_all_true(scenes):
    for i in range(N):
        captions, scene = scenes.captions(i), scenes.scene(i)
        assert len(captions) == len(set(captions)) == 5
        for caption, named in zip(captions, scenes.named(i), strict=True):
            claim = parse_caption(caption)
            by_word = dict(named)
            subject, other = by_word[claim.subject.at], by_word[claim.object.at]
            assert {subject, other} == {0, 1}
            assert Relation(subject, claim.relation, other) in scene.relations
            for phrase, k in ((claim.subject, subject), (claim.object, other)):
                thing = scene.objects[k]
                assert caption.split()[phrase.at] == thing.shape == phrase.shape
                assert phrase.colour == thing.colour
                assert phrase.size in {None, thing.size}
                assert (phrase.texture or "plain") == thing.texture


def test_boxes_hold_what_is_seen_of_each_thing():
    layout = random_layout(CounterRNG(3, "val layout", range(64)))
    _, owner = draw(layout, CounterRNG(3, "val paint", range(64)))
    scenes = Scenes(64, seed=3, split="val")
    for i in range(64):
        seen = [k for k in range(4) if (owner[i] == k).any()]
        assert len(scenes.scene(i).objects) == len(seen)
        for k, thing in zip(seen, scenes.scene(i).objects, strict=True):
            y, x = np.nonzero(owner[i] == k)  # the oracle: all pixels, one by one
            assert thing.box == (x.min(), y.min(), x.max() + 1, y.max() + 1)


def test_a_thing_has_its_colour_where_its_box_is(scenes):
    """In the middle of a plain white or blue square blue is not red, whatever the light."""
    found = Counter()
    for i in range(N):
        for thing in scenes.scene(i).objects[:2]:
            if thing.texture == "plain" and thing.shape in {"circle", "square"} and thing.size == "large":
                left, top, right, bottom = thing.box
                cut = scenes.open(i)[:, top + 5 : bottom - 5, left + 5 : right - 5].float()
                red, green, blue = cut.flatten(1).median(1).values.tolist()
                truth = {"red": red > 1.5 * max(green, blue), "blue": blue > 1.5 * max(green, red)}
                truth |= {"green": green > 1.3 * max(red, blue), "white": min(red, green, blue) > 120}
                if thing.colour in truth and not _is_hidden(scenes.scene(i)):
                    assert truth[thing.colour], (i, thing, red, green, blue)
                    found[thing.colour] += 1
    assert len(found) >= 3


def _is_hidden(scene):
    return any(relation.name == "behind" for relation in scene.relations)


def test_relations_come_in_opposites(scenes):
    for i in range(N):
        relations = set(scenes.scene(i).relations)
        assert {Relation(o, OPPOSITES[name], s) for s, name, o in relations} == relations


def test_what_is_behind_is_partly_hidden_and_still_seen():
    n = 640
    layout = random_layout(CounterRNG(0, "train layout", range(n)))
    _, owner = draw(layout, CounterRNG(0, "train paint", range(n)))
    whole = []
    for k in (0, 1):
        lone = layout._replace(there=np.tile(np.arange(4) == k, (n, 1)))
        whole.append((draw(lone, CounterRNG(0, "train paint", range(n)))[1] == k).sum((1, 2)))
    behind = 1 - layout.front
    share = (owner == behind[:, None, None]).sum((1, 2)) / np.where(behind, whole[1], whole[0])
    assert 100 < layout.overlap.sum() < 300
    assert share[layout.overlap].min() > 0.3
    assert (share[layout.overlap] < 1).mean() > 0.95
    assert (share[~layout.overlap] == 1).all()


def test_what_is_in_front_is_lower():
    layout = random_layout(CounterRNG(0, "train layout", range(640)))
    y = layout.y[np.arange(640)[:, None], np.stack([layout.front, 1 - layout.front], axis=1)]
    assert (y[:, 0] - y[:, 1])[layout.overlap].min() > 3


def test_everything_occurs(scenes):
    things = [thing for i in range(N) for thing in scenes.scene(i).objects[:2]]
    for kind, known in (("shape", SHAPES), ("colour", COLOURS), ("size", SIZES), ("texture", TEXTURES)):
        counts = Counter(getattr(thing, kind) for thing in things)
        assert set(counts) == set(known)
        assert min(counts.values()) > len(things) / len(known) / 3
    said = Counter(parse_caption(c).relation for i in range(N) for c in scenes.captions(i))
    assert set(said) == set(RELATIONS)
    assert {len(scenes.scene(i).objects) for i in range(N)} == {2, 3, 4}


def test_no_two_things_share_colour_and_shape_with_the_pair(scenes):
    for i in range(N):
        kinds = [(thing.shape, thing.colour) for thing in scenes.scene(i).objects]
        assert all(kinds.count(kind) == 1 for kind in kinds[:2])


@pytest.mark.parametrize("template", TEMPLATES)
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_a_sentence_claims_what_it_was_made_of(template, data):
    things = [
        {
            "texture": data.draw(st.sampled_from(TEXTURES)),
            "colour": data.draw(st.sampled_from(COLOURS)),
            "shape": data.draw(st.sampled_from(SHAPES)),
            "size": data.draw(st.sampled_from(["", *(w for ways in SIZES.values() for w in ways)])),
        }
        for _ in range(2)
    ]
    relation = data.draw(st.sampled_from(sorted(RELATIONS)))
    way = data.draw(st.sampled_from(RELATIONS[relation]))
    caption = sentence(template, names_of(**things[0]), way, names_of(**things[1]))
    claim = parse_caption(caption)
    assert claim.relation == relation
    for phrase, thing in zip((claim.subject, claim.object), things, strict=True):
        size = next((size for size, ways in SIZES.items() if thing["size"] in ways), None)
        texture = None if thing["texture"] == "plain" else thing["texture"]
        assert phrase[:4] == (thing["shape"], thing["colour"], size, texture)
    assert "a orange" not in caption


@pytest.mark.parametrize(
    "caption",
    [
        "",
        "a red star",
        "a red star a blue ring",
        "a star above a ring above a cross",
        "above",
        "a ring left of",
    ],
)
def test_what_is_no_sentence_claims_nothing(caption):
    assert parse_caption(caption) is None


def test_adjectives_belong_to_the_next_noun():
    phrases = phrases_of(["red", "the", "star", "and", "a", "big", "spotted", "ring"])
    assert [phrase[:4] for phrase in phrases] == [
        ("star", None, None, None),
        ("ring", None, "large", "spotted"),
    ]


@given(seed=st.integers(-(2**65), 2**65), n=st.integers(1, 60))
@settings(max_examples=30, deadline=None)
def test_dice_fall_evenly(seed, n):
    thrown_ones = CounterRNG(seed, "evenly", range(4000)).integers(n)
    counts = np.bincount(thrown_ones, minlength=n)
    assert len(counts) == n
    assert abs(counts - 4000 / n).max() < 7 * (4000 / n) ** 0.5 + 1


def test_dice_throw_anew_each_time():
    rng = CounterRNG(0, "anew", range(1000))
    first, second = rng.integers(1000), rng.integers(1000)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.15
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < 0.15
    order = rng.permutation(7)
    assert (np.sort(order, axis=1) == np.arange(7)).all()
    grain = rng.noise(13)
    assert grain.shape == (1000, 13)
    assert abs(grain.mean()) < 0.3
    assert (grain.min(), grain.max()) == (-15, 15)


def test_as_a_set_of_captions():
    found = scenes_set(7, 3, 5, seed=2)
    assert found.splits() == {"train": 7, "val": 3, "test": 5}
    assert isinstance(found.images, SceneImages)
    record = found.split("test")[4]
    alone = Scenes(5, seed=2, split="test")
    assert record.captions == alone.captions(4)
    assert torch.equal(found.open(record), alone.open(4))
    assert found.images.scene(record.name) == alone.scene(4)
    assert found.open(record, size=31).shape == (3, 31, 31)
    assert len({found.image_digest(r) for r in found.records}) == 15


@pytest.mark.bad_input
def test_sentences_for_what_is_wrong():
    with pytest.raises(ValueError, match=r"at least 0, got -1"):
        Scenes(-1)
    with pytest.raises(ValueError, match=r"'tset'.*did you mean 'test'"):
        Scenes(3, split="tset")
    with pytest.raises(IndexError, match=r"from 0 to 2, got 3"):
        Scenes(3).open(3)
    with pytest.raises(ValueError, match=r"'cat.jpg'"):
        scenes_set(1, 1, 1).images.open("cat.jpg")
