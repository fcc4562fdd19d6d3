"""Tests that reach into the package forbid a better one: how much they do may only shrink."""

import pytest

from tests.contract.reaches import all_reaches, reaches
from tests.golden.written import written


def test_tests_reach_no_further_than_is_written_down():
    found = all_reaches()
    known = written("reaches.json", found)
    assert len(known) < 300
    more = [f"{name}: {known.get(name, 0)} -> {n}" for name, n in found.items() if n > known.get(name, 0)]
    assert more == [], "tests/golden/reaches.json may only shrink; reach inside in tests/seams.py alone"
    assert sum(found.values()) <= sum(known.values())


@pytest.mark.parametrize("room", ["contract", "oracle", "zoo"])
def test_the_net_knows_public_names_alone(room):
    assert {name: n for name, n in all_reaches().items() if name.startswith(f"{room}/")} == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import sightline as sl\nsl.look(q, k)", set()),
        ("from sightline.models import Captioner\nimport sightline.nn as nn", set()),
        ("import sightline.look.stream", {"sightline.look.stream"}),
        ("def f():\n    from sightline.look import stream", {"sightline.look.stream"}),
        ("from sightline import watch, attention", {"sightline.watch", "sightline.attention"}),
        ("from sightline import Sight", set()),
        ("module._inside\nself._inside\ntorch._foreign", {"_inside"}),
        ('monkeypatch.setattr(module, "_inside", 1)', {"_inside"}),
    ],
)
def test_what_is_reached_is_found(tmp_path, source, expected):
    (tmp_path / "test_x.py").write_text(source)
    assert reaches(tmp_path / "test_x.py", {"_inside"}) == expected
