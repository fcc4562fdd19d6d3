"""The bits of the counter-based generator never change: data sets and augmentations are made of them."""

import hashlib

import numpy as np
import torch

from sightline.data.augment import Augment, apply_augment, mix, partners
from sightline.data.counter_rng import CounterRNG, random_integers, random_uniform
from sightline.data.segmented_corpus import SegmentedCorpus
from sightline.data.tokens import Tokenizer


def digest(*arrays):
    found = hashlib.sha256()
    for array in arrays:
        x = np.ascontiguousarray(array)
        found.update(f"{x.dtype.str} {x.shape}".encode() + x.tobytes())
    return found.hexdigest()[:16]


def test_the_bits_of_an_array_of_generators():
    rng = CounterRNG(2**63 + 11, "some stream", range(3, 107))
    found = [rng.integers(7), rng.uniform(-0.45, 2.5), rng.bernoulli(30), rng.permutation(13), rng.noise(29)]
    assert digest(*found) == "3f31e2838b49e4e3"
    assert digest(CounterRNG(-5, "", [2**40 + 1, 0]).integers(1 << 20)) == "a331931232c87db8"


def test_the_bits_of_draws_by_place():
    indices = torch.tensor([0, 5, 2**40 + 3])
    drawn = [
        random_uniform(2**61 + 1, 7, indices, 5, stream=3),
        random_uniform(~0, torch.tensor(2), indices, 2),
    ]
    assert digest(*drawn, random_integers(1000, 13, 4, indices, stream=8)) == "41bac3a77f7ae65f"


def test_the_bits_of_augmentations():
    images = torch.from_numpy(CounterRNG(1, "images", range(5)).noise(3 * 11 * 13).astype(np.uint8))
    images = images.view(5, 3, 11, 13)
    indices = torch.tensor([3, 1, 4, 15, 9])
    flipped = apply_augment(images, Augment(flip=0.5), seed=2, epoch=3, indices=indices)
    others = partners(97, seed=2, epoch=3, indices=indices)
    blend = mix(flipped, flipped.flip(0), Augment(cutmix=1.0), seed=2, epoch=3, indices=indices)
    assert digest(flipped, others, blend.images) == "447dbd9b39d6927b"


def test_the_bits_that_choose_among_the_ways_a_word_is_cut():
    texts = ["the lower lowest slow", "a newer wider river", "slower rivers lower", "the the"]
    tokenizer = Tokenizer.train(texts * 5, kind="bpe", vocab_size=60)
    cuts = SegmentedCorpus(tokenizer, texts, dropout=0.4, variants=7, seed=3)
    assert digest(*(cuts.batch(range(4), epoch=epoch) for epoch in range(5))) == "b11c50c8f1c03d65"
