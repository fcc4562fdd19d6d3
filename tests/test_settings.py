"""Settings go to JSON and come back the same."""

import dataclasses
import json
import math
import re

import pytest

from sightline.settings import as_json, check, from_json, setting, setting_of


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Inner:
    rate: float = setting(0.5, "How fast.")
    sizes: tuple[int, ...] = setting((2, 3), "How large.")


INNER = Inner()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Outer:
    name: str = setting("x", "What it is called.")
    limit: int | None = setting(None, "How many at most.")
    inner: Inner = setting(INNER, "What is inside.")  # noqa: RUF009


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Limited:
    epochs: int = setting(3, "How often.", at_least=1)
    lr: float = setting(0.1, "How fast.", above=0)
    dropout: float | None = setting(None, "How much.", at_least=0, below=1)
    crop: float = setting(1.0, "How much is left.", above=0, at_most=1)
    schedule: str = setting("cosine", "How it falls.", choices=("constant", "cosine"))
    free: float = setting(0.0, "Any number.", aliases=("loose", "wild"), group="Data", advanced=True)

    def __post_init__(self):
        check(self)


def test_they_come_back_the_same():
    there = Outer(name="y", limit=7, inner=Inner(rate=0.25, sizes=(5,)))
    assert from_json(Outer, json.loads(json.dumps(as_json(there)))) == there


def test_a_missing_name_takes_its_default_and_a_whole_number_becomes_a_float():
    back = from_json(Outer, {"inner": {"rate": 1}})
    assert back == Outer(inner=Inner(rate=1.0))
    assert isinstance(back.inner.rate, float)


def test_help_stands_on_the_field():
    assert [setting_of(field).help for field in dataclasses.fields(Inner)] == ["How fast.", "How large."]


@pytest.mark.bad_input
def test_an_unknown_name_is_named_with_the_nearest():
    with pytest.raises(ValueError, match=r"setting 'rat' in config.json, inner, .*did you mean 'rate'"):
        from_json(Outer, {"inner": {"rat": 1}})


@pytest.mark.parametrize(
    "values",
    [
        {"epochs": 1, "lr": 1e-9, "dropout": 0.0, "crop": 1.0, "schedule": "constant", "free": -1e9},
        {"dropout": 0.999, "crop": 1e-9},
    ],
)
def test_values_on_the_edge_are_allowed(values):
    assert {name: as_json(Limited(**values))[name] for name in values} == values


@pytest.mark.parametrize("old", ["loose", "wild"])
def test_a_name_that_a_field_had_before_is_read(old):
    assert from_json(Limited, {old: 2.5}) == Limited(free=2.5)
    assert as_json(Limited(free=2.5))["free"] == 2.5


def test_what_the_help_needs_stands_on_the_field():
    about = setting_of(dataclasses.fields(Limited)[-1])
    assert (about.help, about.group, about.advanced, about.aliases) == (
        "Any number.",
        "Data",
        True,
        ("loose", "wild"),
    )
    assert setting_of(dataclasses.fields(Limited)[0]).group is None


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"epochs": "many"}, "epochs must be a whole number, got 'many'"),
        ({"lr": 0.0}, "lr must be a positive number, got 0.0"),
        ({"lr": math.inf}, "lr must be a finite number, got inf"),
        ({"dropout": 1.5}, "dropout must be at least 0 and below 1, got 1.5"),
        ({"dropout": math.nan}, "dropout must be a finite number, got nan"),
        ({"crop": 0.0}, "crop must be above 0 and at most 1, got 0.0"),
        ({"crop": 1.01}, "crop must be above 0 and at most 1, got 1.01"),
        ({"free": math.nan}, "free must be a finite number, got nan"),
        (
            {"schedule": "cosin"},
            "unknown schedule 'cosin', expected one of 'constant', 'cosine'; did you mean 'cosine'?",
        ),
    ],
)
def test_a_value_outside_its_limits_is_refused_in_a_sentence(values, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        Limited(**values)
