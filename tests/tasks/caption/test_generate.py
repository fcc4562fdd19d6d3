"""Captions against the searches that they come from."""

import pytest
import torch
from torch.testing import assert_close

from sightline.data.images import read_image
from sightline.data.tokens import BOS, PAD, UNK, Tokenizer
from sightline.decode.search import beam, greedy, sample
from sightline.models.captioner import Captioner
from sightline.tasks.caption.generate import SamplingConfig, generate_captions, join_pieces
from tests.tasks.caption.caption_runs import make_data, make_run

NEVER_GENERATED = (0, 1, 3)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions")
    make_data(folder / "data")
    make_run(folder / "run", folder / "data")
    images = torch.stack([read_image(folder / "data" / f"{i}.png", size=24) for i in range(5)])
    return Captioner.load(folder / "run"), Tokenizer.load(folder / "run" / "tokenizer.json"), images


def test_captions_are_those_of_the_search_with_its_weights(opened):
    model, tokenizer, images = opened
    captions = [
        ranked[0] for ranked in generate_captions(model, tokenizer, images, beam=3, look=True, batch_size=2)
    ]
    state = model.start(images / 127.5 - 1, look=True)
    found = beam(model, state, width=3, max_length=7, forbidden=NEVER_GENERATED)
    assert [one.text for one in captions] == found.texts(tokenizer)
    for i, one in enumerate(captions):
        assert list(one.ids) == found.lists()[i][0]
        assert one.weights.shape == (len(one.words), 3, 9)
        assert_close(one.weights, found.attention_weights[i, 0, : len(one.words)])
        assert_close(one.weights.sum(-1), torch.ones(len(one.words), 3))


def test_a_beam_of_one_is_greedy(opened):
    model, tokenizer, images = opened
    captions = [ranked[0].text for ranked in generate_captions(model, tokenizer, images, beam=1)]
    found = greedy(model, model.start(images / 127.5 - 1), max_length=7, forbidden=NEVER_GENERATED)
    assert captions == found.texts(tokenizer)


def test_samples_are_those_of_the_seed_through_all_batches(opened):
    model, tokenizer, images = opened
    config = SamplingConfig(temperature=1.3, top_k=11, top_p=0.9, seed=5)
    found = sample(
        model,
        model.start(images / 127.5 - 1),
        samples=7,
        temperature=1.3,
        top_k=11,
        top_p=0.9,
        generator=torch.Generator().manual_seed(5),
        max_length=7,
        forbidden=NEVER_GENERATED,
    )
    drawn = list(generate_captions(model, tokenizer, images, n_best=7, sampling=config))
    assert [[list(one.ids) for one in ranked] for ranked in drawn] == found.lists()
    generator = config.generator(torch.device("cpu"))
    parts = [
        ranked
        for part in images.split(2)
        for ranked in generate_captions(
            model, tokenizer, part, n_best=7, sampling=config, generator=generator
        )
    ]
    whole = generate_captions(model, tokenizer, images, n_best=7, sampling=config, batch_size=2)
    assert [[one.ids for one in ranked] for ranked in parts] == [[one.ids for one in r] for r in whole]


def test_pieces_of_a_word_are_joined_and_their_weights_averaged():
    weights = torch.rand(7, 5, 11)
    words, means = join_pieces(["▁a", "▁stri", "ped", "▁ri", "ng", "s"], weights)
    assert words == ("a", "striped", "rings")
    assert_close(means, torch.stack([weights[0], weights[1:3].mean(0), weights[3:6].mean(0)]))
    assert join_pieces([], weights)[1].shape == (0, 5, 11)
    assert join_pieces(["ped", "▁a"], weights)[0] == ("ped", "a")
    words, means = join_pieces(["two", "plain", "words"], weights)
    assert words == ("two", "plain", "words")
    assert_close(means, weights[:3])


def test_an_unknown_word_is_never_written(opened):
    model, tokenizer, _ = opened
    with torch.no_grad():
        before = model.decoder.bias.clone()
        model.decoder.bias[[PAD, BOS, UNK]] = 100.0
        ((caption,),) = generate_captions(model, tokenizer, torch.zeros(1, 3, 24, 24, dtype=torch.uint8))
        model.decoder.bias.copy_(before)
    assert caption.words
    assert not set(caption.words) & set(tokenizer.words([PAD, BOS, UNK]))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"temperature": 0.0}, "temperature must be a positive number, got 0.0"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, got 1.5"),
        ({"seed": -1}, r"seed must be at least 0 and below 2 \*\* 63, got -1"),
    ],
)
def test_sampling_that_makes_no_sense(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        SamplingConfig(**settings)
