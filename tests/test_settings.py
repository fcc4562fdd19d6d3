"""Settings go to JSON and come back the same."""

import dataclasses
import json

import pytest

from sightline.settings import as_json, from_json, help_of, setting


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


def test_they_come_back_the_same():
    there = Outer(name="y", limit=7, inner=Inner(rate=0.25, sizes=(5,)))
    assert from_json(Outer, json.loads(json.dumps(as_json(there)))) == there


def test_a_missing_name_takes_its_default_and_a_whole_number_becomes_a_float():
    back = from_json(Outer, {"inner": {"rate": 1}})
    assert back == Outer(inner=Inner(rate=1.0))
    assert isinstance(back.inner.rate, float)


def test_help_stands_on_the_field():
    assert [help_of(field) for field in dataclasses.fields(Inner)] == ["How fast.", "How large."]


@pytest.mark.bad_input
def test_an_unknown_name_is_named_with_the_nearest():
    with pytest.raises(ValueError, match=r"setting 'rat' in config.json, inner, .*did you mean 'rate'"):
        from_json(Outer, {"inner": {"rat": 1}})
