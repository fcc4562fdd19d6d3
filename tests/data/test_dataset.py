import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.data.dataset import (
    check_deal,
    digest_of,
    find_split,
    hash_split,
    in_order,
    missing_split,
    split_name,
    split_of_path,
)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (" Validation ", "val"),
        ("dev", "val"),
        ("restval", "train"),
        ("valid-2", "val-2"),
        ("testing", "test"),
        ("trained", "trained"),
        ("devil", "devil"),
        ("test2016", "test2016"),
        ("", ""),
    ],
)
def test_one_spelling_of_a_split(written, name):
    assert split_name(written) == name


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("train-00000-of-00002.parquet", "train"),
        ("data/validation-00001-of-00003-9f86d081.parquet", "val"),
        ("default/test/0000.parquet", "test"),
        ("test_2016_flickr-00000-of-00001.parquet", "test_2016_flickr"),
        ("test-2016.csv", "test-2016"),
        ("train/metadata.jsonl", "train"),
        ("train/test/metadata.csv", "test"),
        ("photos/metadata.csv", None),
        ("train station/x.csv", None),
        ("trainers.csv", None),
        (".train", None),
    ],
)
def test_a_path_tells_its_split(path, split):
    assert split_of_path(path) == split


def test_a_split_is_found_by_any_of_its_names():
    there = ["train", "val", "test_2016", "extra"]
    assert [find_split(x, there) for x in ("train", "dev", "test", "ex", "all", "t")] == [
        "train",
        "val",
        "test_2016",
        "extra",
        None,
        None,
    ]
    assert find_split("test", ["test_a", "test_b"]) is None
    assert find_split("Odd", ["Odd", "odd"]) == "Odd"


@pytest.mark.parametrize(
    ("name", "counts", "sentence"),
    [
        ("test", {"train": 5, "val": 2}, "has 'train' (5), 'val' (2); take --split val, or add some"),
        (
            "testing",
            {"train": 5, "val": 2},
            "'testing' in 'x', which has 'train' (5), 'val' (2); take --split val, or add some",
        ),
        ("test", {"val": 2, "test_a": 3, "test_b": 5}, "take --split test_a, or add some"),
        ("vall", {"train": 5, "val": 2}, "(2); take --split val"),
        ("val", {"train": 5}, "(5); add some"),
        ("odd", {"train": 5}, "(5); choose one of these"),
        ("odd", {}, "which has none"),
    ],
)
def test_a_missing_split_is_one_sentence_with_a_remedy(name, counts, sentence):
    told = str(missing_split(name, counts, "x", remedy="add some"))
    assert told.endswith(sentence)


def test_the_splits_that_everybody_has_come_first():
    assert list(in_order({"odd": 1, "test": 2, "a": 3, "train": 5})) == ["train", "test", "a", "odd"]


def test_dealing_as_version_0_1_dealt_captions():
    dealt = hash_split([f"{i}.jpg" for i in range(23)], seed=7)
    held = {name: split for name, split in dealt.items() if split != "train"}
    assert held == {"9.jpg": "val", "1.jpg": "val", "8.jpg": "test", "13.jpg": "test"}


def by_hand(keys, seed, val, test):
    """The stated rule for tenths and the like, in whole numbers."""
    order = sorted(set(keys), key=lambda key: hashlib.sha256(f"{seed}/{key}".encode()).digest())
    n = len(order)
    n_val, n_test = (max(n * share // 100, 1 if n > 2 else 0) for share in (val, test))
    return {k: "val" if i < n_val else "test" if i < n_val + n_test else "train" for i, k in enumerate(order)}


@given(st.lists(st.text(max_size=5), max_size=60), st.integers(-3, 3), st.integers(1, 30), st.integers(1, 30))
def test_dealing_is_the_stated_rule_and_no_matter_of_order(keys, seed, val, test):
    dealt = hash_split(keys, seed=seed, val=val / 100, test=test / 100)
    assert dealt == by_hand(keys, seed, val, test)
    assert hash_split(keys[::-1], seed=seed, val=val / 100, test=test / 100) == dealt


def test_a_share_is_no_matter_of_rounding():
    dealt = list(hash_split(map(str, range(100)), val=0.29, test=0.0).values())
    assert dealt.count("val") == 29  # 0.29 * 100 is a little less in floats


def test_each_class_is_dealt_by_itself():
    strata = {f"{c}/{i}": c for c, n in (("cat", 31), ("dog", 3), ("cow", 2)) for i in range(n)}
    dealt = hash_split(strata, val=0.2, strata=strata)
    counts = {
        c: [
            sum(s == split and strata[k] == c for k, s in dealt.items()) for split in ("train", "val", "test")
        ]
        for c in ("cat", "dog", "cow")
    }
    assert counts == {"cat": [22, 6, 3], "dog": [1, 1, 1], "cow": [2, 0, 0]}
    assert set(hash_split(["a", "\udcff"], val=0.1, test=0.0).values()) == {"train", "val"}


@pytest.mark.bad_input
@pytest.mark.parametrize("shares", [(0.5, 0.5), (-0.1, 0.1), (float("nan"), 0.1)])
def test_shares_that_are_none(shares):
    with pytest.raises(ValueError, match=f"below 1 together, got {shares[0]} and {shares[1]}"):
        hash_split(["a"], val=shares[0], test=shares[1])


@pytest.mark.bad_input
def test_a_rule_that_is_none():
    check_deal("0.1")
    with pytest.raises(ValueError, match=r"unknown deal '0\.2', expected one of '0\.1', 'hash'"):
        check_deal("0.2")


def test_a_digest_is_the_hash_of_the_examples_as_json():
    examples = [("a", "é"), (1, 2, 3)]
    text = "".join(json.dumps(list(example)) for example in examples)
    assert digest_of(examples) == hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
    assert digest_of(examples) != digest_of(examples[::-1])
