"""The pages of the reference that come from the code are what the code says, and each name has an example."""

import pytest

from sightline.tasks import registry
from tests.pins import skip_unless_pinned
from workshop import DOCS
from workshop.pages import public_names, reference_commands
from workshop.pages.__main__ import PAGES

ELSEWHERE = {
    "sl.masks.as_mask": "what every function does with its mask; the examples are theirs",
    "sl.masks.Band": "a part of Mask; window() makes one",
    "sl.train.fit": "the example of sl.train.Objective trains with it",
}


def test_every_public_name_has_an_example_that_runs():
    names = list(public_names.public_names())
    assert len(names) > 90
    assert {name for name, found in names if not public_names.has_example(found)} == set(ELSEWHERE)


@pytest.mark.parametrize("name", ["api", "models_watched"])
def test_a_page_is_what_the_code_says(name):
    written = (DOCS / f"lookup/{name}.md").read_text(encoding="utf-8")
    assert written == PAGES[name](), f"`python -m workshop.pages {name}` writes it"


def test_the_help_of_every_command_is_on_its_page(monkeypatch):
    skip_unless_pinned("typer")  # it draws the help
    own = {kind: entry for kind, entry in registry._ENTRIES.items() if kind in registry._BUILT_IN}
    monkeypatch.setattr(registry, "_ENTRIES", own)  # another test may have registered a task
    written = (DOCS / "lookup/commands.md").read_text(encoding="utf-8")
    helps = {
        words: "\n".join(reference_commands.help_of(words)) for words in reference_commands.every_command()
    }
    stale = [words for words, text in helps.items() if text not in written]
    assert not stale, "`python -m workshop.pages commands` writes it"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_one_of_the_reference(name):
    assert (DOCS / f"lookup/{name}.md").exists()
