"""Words of any script: letters that the figures' font lacks come from another one, or are told."""

import io

import pytest
import torch
from matplotlib.text import Text

from sightline import show
from sightline.show import fonts
from sightline.show.alignment import alignment

RARE = "ᶁ"  # in STIX, which comes with matplotlib, and not in DejaVu Sans


@pytest.fixture(autouse=True)
def only_matplotlibs_own(monkeypatch):
    """Whatever is installed here, only the fonts that come with matplotlib count."""
    own = [font for font in fonts.fontManager.ttflist if "mpl-data" in font.fname]
    monkeypatch.setattr(fonts.fontManager, "ttflist", own)
    monkeypatch.setattr(fonts, "_reported", set())
    fonts._families.cache_clear()
    yield
    fonts._families.cache_clear()


def written(figure):
    file = io.BytesIO()
    figure.savefig(file, format="png")  # a letter without a sign would be a warning, which fails a test
    return {text.get_text(): text.get_fontfamily() for text in figure.findobj(Text)}


def test_letters_come_from_a_font_that_has_them(caplog):
    found = written(alignment(torch.eye(2), ["a", RARE], ["b", "c"], title=f"a {RARE}"))
    for text in (RARE, f"a {RARE}"):
        assert found[text] == ["DejaVu Sans", "STIXGeneral"]
    assert not caplog.messages


def test_letters_that_no_font_has_are_logged_once(caplog):
    for _ in range(2):
        written(alignment(torch.eye(2), ["漢", "字"], ["b", RARE]))
    assert caplog.messages == [
        "no installed font has 字, 漢: drawn as boxes; install one that has, such as Noto's"
    ]


@pytest.mark.parametrize("words", [["Μαΐου", "мая"], ["مايو", "may"]])
def test_greek_cyrillic_and_arabic_need_no_other_font(words, caplog):
    assert written(show.weights(torch.eye(2), words, words))[words[0]] == ["DejaVu Sans"]
    assert not caplog.messages


def test_wide_letters_get_the_room_that_they_take():
    narrow, wide = (show.weights(torch.eye(2), [word * 7, "b"]).get_figwidth() for word in ("a", "漢"))
    assert wide > narrow + 0.4
