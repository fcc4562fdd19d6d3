"""The examples on trained runs, in a small version: boxes of captions, copied digits, heads removed."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

import sightline as sl
from sightline.data.dates import DatePair

pytest.importorskip("sacrebleu")
FIGURES = Path(__file__).parents[1] / "figures"
TINY = {"steps": 3, "min_steps": None, "shown": False, "n_heads": 2, "n_layers": 1, "d_model": 16, "d_ff": 16}
KINDS = {
    "translate": {"data": "dates", "n_train": 40, "n_val": 5, "n_test": 5},
    "caption": {"data": "scenes", "n_train": 12, "n_val": 6, "n_test": 6, "preset": "tiny"},
    "classify": {"data": "digits"},
}


def script(name):
    spec = importlib.util.spec_from_file_location(name, FIGURES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each task, hardly trained."""
    folder = tmp_path_factory.mktemp("runs")
    for kind, settings in KINDS.items():
        sl.tasks.train(kind, out=folder / kind, **TINY, **settings)
    return folder


@pytest.mark.parametrize(("kind", "n_heads"), [("translate", 6), ("caption", 4), ("classify", 2)])
def test_every_head_is_removed_once(runs, tmp_path, capsys, kind, n_heads):
    removed = script("heads_removed")
    removed.main(
        [str(runs / kind), "--limit", "5", "--out", str(tmp_path / "a.png"), "--json", str(tmp_path / "a")]
    )
    found = json.loads((tmp_path / "a").read_text())
    heads = {(x["layer"], x["head"]) for x in found["heads"]}
    assert len(heads) == len(found["heads"]) >= n_heads
    assert all(x["importance"] >= 0 for x in found["heads"])
    assert (tmp_path / "a.png").stat().st_size > 1000
    assert "all heads" in capsys.readouterr().out
    run = sl.open_run(runs / kind)
    example = list(run.predictor.examples(run.dataset(), "val", 3))
    with sl.watch(run.model, grad=True) as seen:
        removed.loss_of(run, example).backward()
    expected = {(n, i): x for n in seen for i, x in enumerate(seen.calls(n)[0].importance.mean(0).tolist())}
    found = removed.importances(run, 3, batch_size=2)  # two batches, one mean
    assert found == pytest.approx(expected, rel=1e-4)


def test_rank_correlation():
    removed = script("heads_removed")
    heads = [
        removed.Head("a", i, importance, score)
        for i, (importance, score) in enumerate([(5.0, 1.0), (4.0, 3.0), (3.0, 2.0), (1.0, 9.0), (0.5, 9.0)])
    ]
    # ranks of importance 5 4 3 2 1, of what is lost 5 3 4 1.5 1.5
    assert removed.rank_correlation(heads, 10.0) == pytest.approx(0.8720815992723809)


def test_letters_of_a_date():
    copying = script("copying_heads")
    spans = {"day": (0, 1), "month": (3, 6), "year": (7, 11)}
    date = DatePair(source="3. Mai 1979", target="1979-05-03", locale="de", spans=spans)
    offsets = [(0, 0), *((i, i + 1) for i in range(11)), (11, 11)]  # letter by letter, between two marks
    ids = copying.group_ids([date], [offsets], 14)[0].tolist()
    assert ids == [-1, 2, -1, -1, 1, 1, 1, -1, 0, 0, 0, 0, -1, -1]


def test_which_head_copies(runs, tmp_path, capsys):
    copying = script("copying_heads")
    copying.main([str(runs / "translate"), "--limit", "5", "--out", str(tmp_path / "a.png")])
    assert "copies" in capsys.readouterr().out
    run = sl.open_run(runs / "translate")
    (example,) = run.predictor.examples(run.dataset(), "test", 1)
    date = example.truth
    rows = run.layers(
        next(run.predict([example.input], unknown=True))
    )  # its own translation: only the first step is alike
    weights = rows["decoder.layers.0.multihead_attn"].weights[0, :, 0]  # (H, S)
    start, end = date.spans["year"]
    letters = run.predictor.tokens.offsets(date.source)
    year = [i for i, (first, last) in enumerate(letters) if start <= first < last <= end]
    found = copying.weights_of(run, [example])
    for head in range(2):
        expected = weights[head, year].sum().item()
        assert found["decoder.layers.0.multihead_attn", head][0] == pytest.approx(expected, abs=1e-5)


def test_mass_on_boxes(runs, tmp_path, capsys):
    boxes = script("caption_boxes")
    run = sl.open_run(runs / "caption")
    scene = next(iter(run.predictor.examples(run.dataset(), "test", 1))).truth
    cells = boxes.inside(scene, 0, (16, 16)).view(16, 16)
    left, top, right, bottom = scene.objects[0].box
    side = boxes.SIDE / 16
    for row in range(16):
        for column in range(16):
            x, y = (column + 0.5) * side, (row + 0.5) * side
            assert bool(cells[row, column]) == (left <= x < right and top <= y < bottom)
    own, others = boxes.groups_of(scene, 0, (16, 16))
    assert own == cells.flatten().nonzero().flatten().tolist()
    assert not set(own) & set(others)
    words = ["a", *[thing.shape for thing in scene.objects]]
    with pytest.MonkeyPatch.context() as patch:  # hardly trained, it names nothing: have it say two shapes
        patch.setattr(boxes, "phrases_of", lambda _said: boxes_phrases(scene, words))
        found = boxes.measure(run, 1)
        boxes.draw(found).savefig(tmp_path / "a.png")
    assert found.n_words == len(scene.objects)
    assert all(0 <= x.own <= 1 and 0 <= x.own + x.others <= 1 + 1e-6 for x in found.heads)


def boxes_phrases(scene, words):
    from sightline.data.scenes_words import Phrase

    return [
        Phrase(at=words.index(thing.shape), shape=thing.shape, colour=thing.colour, size=None, texture=None)
        for thing in scene.objects
    ]


def test_there_is_nothing_left_of_an_edit(runs):
    run = sl.open_run(runs / "translate")
    before = [p.text for p in run.predict(["3. Mai 1979"], beam=1)]
    script("copying_heads").measure(run, 2)
    assert [p.text for p in run.predict(["3. Mai 1979"], beam=1)] == before
    assert not any(module._forward_hooks for module in run.model.modules())
    assert torch.is_grad_enabled()
