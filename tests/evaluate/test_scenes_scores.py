"""What was said is held against what was drawn, and where the model looked against the boxes."""

import pytest
import torch

from sightline.data.scenes import Relation, Scene, Scenes, Thing
from sightline.data.scenes_words import parse_caption
from sightline.evaluate.scenes import groundings, is_true, match_object, scene_scores

STAR = Thing("star", "red", "small", "plain", (0, 0, 16, 16))  # the upper left quarter of a 4 x 4 grid's half
RING = Thing("ring", "blue", "large", "striped", (32, 32, 64, 56))
OTHER = Thing("star", "green", "tiny", "plain", (48, 0, 56, 8))
SCENE = Scene(
    (STAR, RING, OTHER),
    (Relation(0, "left of", 1), Relation(1, "right of", 0), Relation(1, "below", 2), Relation(2, "above", 1)),
)
GRID = (3, 5)


def looking(*cells, heads=2):
    """Weights that peak at one cell a step."""
    weights = torch.full((len(cells), heads, GRID[0] * GRID[1]), 0.01)
    for step, cell in enumerate(cells):
        weights[step, :, cell] = 1
    return weights


def test_captions_of_scenes_are_true_of_them_and_not_of_others():
    scenes = Scenes(53, seed=1, split="test")
    for i in range(53):
        assert all(is_true(scenes.scene(i), caption, strict=True) for caption in scenes.captions(i))
    others = [is_true(scenes.scene(i), scenes.captions(i - 1)[0]) for i in range(1, 53)]
    assert sum(others) <= 2


@pytest.mark.parametrize(
    ("caption", "true", "strict"),
    [
        ("a red star left of a blue ring", True, True),
        ("a star left of a ring", True, True),
        ("a large red star left of a blue ring", True, False),
        ("a red star left of a spotted blue ring", True, False),
        ("a red star right of a blue ring", False, False),
        ("a red star above a blue ring", False, False),
        ("a star above a blue ring", True, True),
        ("a blue star left of a blue ring", False, False),
        ("a red cross left of a blue ring", False, False),
        ("a red star", False, False),
        ("", False, False),
    ],
)
def test_what_is_true(caption, true, strict):
    assert (is_true(SCENE, caption), is_true(SCENE, caption, strict=True)) == (true, strict)


def test_which_thing_a_phrase_is_about():
    claim = parse_caption("a green star above a yellow ring")
    assert match_object(SCENE, claim.subject) == 2
    assert match_object(SCENE, claim.object) == 1
    assert match_object(SCENE, parse_caption("a cross above a white star").subject) is None
    assert match_object(SCENE, parse_caption("a cross above a white star").object) == 0


def test_a_peak_is_where_the_middle_of_its_cell_is():
    words = ["star", "ring"]
    inside = {STAR: [], RING: []}
    for cell in range(15):
        y, x = (cell // 5 + 0.5) * 64 / 3, (cell % 5 + 0.5) * 64 / 5
        for thing, hits in inside.items():
            left, top, right, bottom = thing.box
            hits.append(left <= x < right and top <= y < bottom)
        found = list(groundings(SCENE, words, looking(cell, cell), GRID))
        assert [g.hit for g in found] == [inside[STAR][cell], inside[RING][cell]]
        assert [g.thing for g in found] == [0, 1]
    assert found[0].chance == pytest.approx(sum(inside[STAR]) / 15)
    assert found[1].chance == pytest.approx(sum(inside[RING]) / 15)
    assert 0 < found[0].chance < found[1].chance


def test_heads_are_averaged_before_the_peak_is_taken():
    weights = torch.zeros(1, 2, 15)
    weights[0, 0, 14], weights[0, 0, 0] = 0.51, 0.49
    weights[0, 1, 7], weights[0, 1, 0] = 0.51, 0.49
    assert next(groundings(SCENE, ["star"], weights, GRID)).hit


def test_chance_is_what_a_random_peak_gets():
    scenes = Scenes(97, seed=5, split="test")
    captions = [scenes.captions(i)[0].split() for i in range(97)]
    torch.manual_seed(0)
    weights = [torch.rand(len(caption), 1, 64) for caption in captions]
    totals = {"grounding": 0.0, "grounding_chance": 0.0}
    for _ in range(11):
        weights = [torch.rand_like(w) for w in weights]
        scores = scene_scores(captions, weights, [scenes.scene(i) for i in range(97)], (8, 8)).total
        totals = {name: total + scores[name] / 11 for name, total in totals.items()}
    assert totals["grounding"] == pytest.approx(totals["grounding_chance"], abs=0.02)
    assert scores["attribute_accuracy"] == scores["strict_accuracy"] == 1


def test_scores_of_right_and_wrong_looks():
    right = ["a", "red", "star", "left", "of", "a", "blue", "ring"]
    wrong = ["a", "red", "cross", "left", "of", "a", "blue", "ring"]
    looks = looking(0, 0, 0, 7, 7, 7, 7, 13)
    scores = scene_scores([right, wrong], [looks, looks], [SCENE, SCENE], GRID)
    assert scores.each["attribute_accuracy"] == [1, 0]
    scores = scores.total
    assert scores["attribute_accuracy"] == 0.5
    assert scores["grounding"] == 0.75  # there is no cross to look at


def test_a_caption_without_things_is_not_grounded():
    assert scene_scores([[]], [torch.zeros(0, 2, 15)], [SCENE], GRID).total["grounding"] == 0


@pytest.mark.bad_input
def test_sentences_for_what_does_not_fit():
    with pytest.raises(ValueError, match=r"2 scenes, 1 captions and 0 weights"):
        scene_scores([["a"]], [], [SCENE, SCENE], GRID)
    with pytest.raises(ValueError, match=r"at least one scene"):
        scene_scores([], [], [], GRID)
