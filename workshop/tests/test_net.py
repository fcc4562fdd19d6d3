"""The net is what it says: tests that name nothing of the package but what is public."""

import tomllib

import pytest

from workshop import ROOT
from workshop.mutation import net

with (ROOT / "workshop/mutation/net.toml").open("rb") as file:
    ROOMS = tomllib.load(file)


@pytest.mark.parametrize("room", ROOMS)
def test_every_file_of_a_room_has_tests_of_the_net(room):
    for place in net.files_of(room):
        files = [ROOT / place] if place.endswith(".py") else sorted((ROOT / place).rglob("test_*.py"))
        paths = [str(path.relative_to(ROOT)) for path in files]
        assert any(net.reasons(path, name) == () for path in paths for name in net.names(path)), place


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        ("import sightline as sl\ndef test_it(): sl.look(1, 2, 3)", ()),
        ("from sightline.attention.masks import causal\ndef test_it(): causal()", ()),
        ("from sightline.cli import main\ndef test_it(): main([])", ()),
        ("from sightline.look import stream\ndef test_it(): stream.pool", ("sightline.look:stream",)),
        ("from sightline.look import stream\ndef test_it(): pass", ()),
        (
            "from sightline.look import stream\ndef helper(): stream.x\ndef test_it(): helper()",
            ("sightline.look:stream",),
        ),
        (
            (
                "import pytest\nfrom sightline.look import stream\n"
                "@pytest.fixture\ndef drawn(): return stream.x\ndef test_it(drawn): pass"
            ),
            ("sightline.look:stream",),
        ),
        (
            "def test_it(monkeypatch): monkeypatch.setattr('sightline.look.look.make_score_inputs', 3)",
            ("'sightline.look.look.make_score_inputs'",),
        ),
        ("def test_it(sight): sight._statistic('lse', '')", ("sight._statistic",)),
        ("def test_it(model): model._forward_hooks", ()),
    ],
)
def test_what_a_test_reaches(tmp_path, text, reached):
    path = tmp_path / "test_it.py"
    path.write_text(text)
    assert net.names(str(path)) == ["test_it"]
    assert net.reasons(str(path), "test_it") == reached
