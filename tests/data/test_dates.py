import datetime as dt

import pytest
from babel.dates import tokenize_pattern

from sightline.data.dates import FIELDS, SPLITS, Dates, _is_certain, _pieces, dates_set

N = 397


@pytest.fixture(scope="module")
def dates():
    return {split: Dates(N, seed=7, split=split) for split in SPLITS}


def test_the_same_seed_gives_the_same_dates_and_another_gives_others(dates):
    assert list(dates["val"]) == list(Dates(N, seed=7, split="val"))
    assert list(dates["val"]) != list(Dates(N, seed=8, split="val"))


def test_the_spans_hold_the_parts_of_the_date(dates):
    for one in dates["train"]:
        day = dt.date.fromisoformat(one.target)
        texts = {field: one.source[slice(*one.spans[field])] for field in FIELDS}
        assert int(texts["year"]) == day.year
        assert int(texts["day"]) == day.day
        assert not texts["month"].isdecimal() or int(texts["month"]) == day.month


def test_no_date_is_in_two_splits_whatever_the_seed():
    days = [{one.target for seed in range(5) for one in Dates(N, seed=seed, split=x)} for x in SPLITS]
    assert len(set().union(*days)) == sum(map(len, days)) > 3 * N


def test_no_text_stands_for_two_dates():
    meanings = {}
    for seed in range(3):
        for one in Dates(3000, seed=seed):
            assert meanings.setdefault(one.source, one.target) == one.target


def test_many_languages_are_written_in_several_forms(dates):
    train = list(dates["train"])
    assert len({one.locale for one in train}) == 24
    assert any("Μα" in one.source for one in Dates(2000, seed=0))
    assert any("月" in one.source for one in train)


def test_the_set_has_all_splits_as_pairs():
    found = dates_set(seed=1, sizes=(11, 3, 5))
    assert {name: len(split) for name, split in found.parts.items()} == {"train": 11, "val": 3, "test": 5}
    assert found.split("test")[2].target == Dates(5, seed=1, split="test")[2].target


@pytest.mark.parametrize(
    ("pattern", "certain"),
    [
        ("d/M/y", False),
        ("M-d-y", False),
        ("dd MM y", False),
        ("d.M.y", True),
        ("y/M/d", True),
        ("d/MMM/y", True),
        ("d MMM yy", False),
        ("MMMM y", False),
        ("EEEE d", False),
    ],
)
def test_a_form_that_could_be_read_in_two_ways_is_left_out(pattern, certain):
    assert _is_certain(_pieces(tokenize_pattern(pattern))) is certain


@pytest.mark.bad_input
def test_its_languages_are_its_own():
    assert dates_set(sizes=(2, 3, 5), source="date", target="iso").source_language == "date"
    with pytest.raises(ValueError, match="'date' to 'iso', got the source 'xx'; leave out --source"):
        dates_set(source="xx")
    with pytest.raises(ValueError, match="got the target 'date'"):
        dates_set(target="date")


@pytest.mark.bad_input
def test_a_split_or_a_number_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"unknown split 'tests' .*did you mean 'test'"):
        Dates(3, split="tests")
    with pytest.raises(ValueError, match="n=0"):
        Dates(0)
