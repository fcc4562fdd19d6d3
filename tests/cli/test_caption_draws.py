"""``sightline caption`` by chance, and what it refuses."""

import json

import pytest
import torch

from sightline.data.images import read_image
from sightline.data.tokens import Tokenizer
from sightline.decode.search import sample
from sightline.models.captioner import Captioner
from sightline.tasks.caption.generate import Chance, say
from tests.cli.caption_runs import make_data, make_run, run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("draws")
    make_data(folder / "data", n=3)
    make_run(folder / "run", folder / "data")
    return folder


def drawn(place, capsys, *words):
    images = [place / "data" / f"{i}.png" for i in range(3)]
    code, out, err = run(capsys, "caption", place / "run", *images, "--json", *words)
    assert (code, err) == (0, "")
    return [[one["caption"] for one in told["n_best"]] for told in json.loads(out)["captions"]]


def test_captions_are_those_that_chance_draws(place, capsys):
    model, tokenizer = Captioner.load(place / "run"), Tokenizer.load(place / "run" / "tokenizer.json")
    images = torch.stack([read_image(place / "data" / f"{i}.png", size=24) for i in range(3)])
    found = sample(
        model,
        model.start(images / 127.5 - 1),
        samples=7,
        temperature=1.3,
        top_k=11,
        top_p=0.9,
        generator=torch.Generator().manual_seed(5),
        max_length=7,
        forbidden=(0, 1, 3),
    )
    expected = [[tokenizer.decode(ids) for ids in ranked] for ranked in found.lists()]
    wishes = ["--temperature", 1.3, "--top-k", 11, "--top-p", 0.9, "--seed", 5, "--n-best", 7]
    assert drawn(place, capsys, *wishes) == expected


def test_one_option_is_enough_and_the_seed_fixes_it(place, capsys):
    plain = drawn(place, capsys)
    first = drawn(place, capsys, "--temperature", 1, "--n-best", 7)
    assert first == drawn(place, capsys, "--seed", 0, "--n-best", 7)
    assert first != drawn(place, capsys, "--seed", 1, "--n-best", 7)
    assert len({text for ranked in first for text in ranked}) > len({text for (text,) in plain})
    greedy = drawn(place, capsys, "--beam", 1)
    assert drawn(place, capsys, "--top-k", 1) == greedy == drawn(place, capsys, "--top-p", 1e-9)


def test_a_draw_can_be_looked_at(place, capsys, tmp_path):
    image = place / "data" / "0.png"
    code, out, _ = run(capsys, "caption", place / "run", image, "--seed", 3, "--out", tmp_path / "a.png")
    assert code == 0
    assert out.endswith(f"{tmp_path / 'a.png'}\n")
    model, tokenizer = Captioner.load(place / "run"), Tokenizer.load(place / "run" / "tokenizer.json")
    (said,) = next(say(model, tokenizer, read_image(image, size=24)[None], chance=Chance(seed=3), look=True))
    assert said.weights.shape == (len(said.words), 3, 9)
    assert said.text in out


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--beam", 3, "--top-k", 5], "got --beam 3 and --top-k 5; give one up"),
        (["--temperature", 0], "temperature must be above 0 and finite, got 0.0"),
        (["--temperature", "inf"], "temperature must be above 0 and finite, got inf"),
        (["--top-k", 0], "top_k must be at least 1, got 0"),
        (["--top-p", 1.5], "top_p must be above 0 and at most 1, got 1.5"),
        (["--seed", -1], "seed must be at least 0 and below 2 ** 63, got -1"),
        (["--seed", 1, "--n-best", 0], "--n-best must be at least 1, got 0"),
        (["--head", 1], "--head 1 is what a figure shows, and none is drawn; add --out"),
    ],
)
def test_what_makes_no_sense(place, capsys, words, sentence):
    code, out, err = run(capsys, "caption", place / "run", place / "data" / "0.png", *words)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.bad_input
def test_a_run_without_weights_can_go_on(place, capsys, tmp_path):
    folder = make_run(tmp_path / "run", place / "data")
    (folder / "model.safetensors").unlink()
    code, _, err = run(capsys, "caption", folder, place / "data" / "0.png")
    assert code == 2
    assert "go on with it by `sightline train` and --resume" in err
