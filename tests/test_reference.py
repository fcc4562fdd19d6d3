"""The pages of the reference that come from the code, and the code that pages show as commands."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from sightline.tasks import registry
from tests.pins import skip_unless_pinned

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs/figures"
ELSEWHERE = {
    "sl.masks.as_mask": "what every function does with its mask; the examples are theirs",
    "sl.masks.Band": "a part of Mask; window() makes one",
    "sl.train.fit": "the example of sl.train.Objective trains with it",
}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
FLAG = re.compile(r"--[a-z][a-z-]*")

pytestmark = pytest.mark.plain


@pytest.fixture(scope="module")
def reference():
    sys.path.insert(0, str(FIGURES))
    try:
        import public_names
        import reference_commands
        import reference_pages
    finally:
        sys.path.remove(str(FIGURES))
    return public_names, reference_pages, reference_commands


def test_every_public_name_has_an_example_that_runs(reference):
    names = reference[0]
    lacking = {name for name, found in names.public_names() if not names.has_example(found)}
    assert len(list(names.public_names())) > 90
    assert lacking == set(ELSEWHERE)


def test_the_page_of_the_api_is_what_the_code_says(reference):
    written = (ROOT / "docs/lookup/api.md").read_text(encoding="utf-8")
    assert written == reference[1].PAGES["api"](), "`make pages` writes it anew"


def test_the_help_of_every_command_is_on_its_page(reference, monkeypatch):
    skip_unless_pinned("typer")  # it draws the help
    own = {kind: entry for kind, entry in registry._ENTRIES.items() if kind in registry._BUILT_IN}
    monkeypatch.setattr(registry, "_ENTRIES", own)  # another test may have registered a task
    written = (ROOT / "docs/lookup/commands.md").read_text(encoding="utf-8")
    stale = [
        words
        for words in reference[2].every_command()
        if "\n".join(reference[2].help_of(words)) not in written
    ]
    assert not stale, "`make pages` writes it anew"


def commands_in(text):
    """The commands in blocks that a shell would take, without their comments."""
    for block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith(("sightline ", "$ sightline ")):
                yield re.split(r"\s{2,}|\s#", line.removeprefix("$ "))[0]


def test_every_flag_of_a_command_on_a_page_exists(reference):
    help_of = reference[2].help_of
    known, bad, count = {}, [], 0
    for page in PAGES:
        for line in commands_in(page.read_text(encoding="utf-8")):
            words = line.split()[1:]
            if words[0].startswith("-"):
                continue
            subcommands = words[:2] if words[0] in {"train", "data"} else words[:1]
            for command in {" ".join(one) for one in _spelled(subcommands)}:
                if command not in known:
                    more = ["--help-all"] if command.startswith("train ") else []
                    known[command] = set(FLAG.findall("\n".join(help_of(" ".join([command, *more])))))
                count += 1
                bad += [
                    f"{page.name}: {line}: {flag}"
                    for flag in FLAG.findall(line)
                    if flag not in known[command] and f"--no-{flag[2:]}" not in known[command]
                ]
    assert count > 30
    assert not bad


def _spelled(words):
    """``train caption|classify`` is two commands."""
    if not words:
        return [[]]
    return [[one, *rest] for one in words[0].split("|") for rest in _spelled(words[1:])]


def test_the_check_sees_a_flag_that_is_not_there():
    (line,) = commands_in("```\nsightline train caption --data DATA  # a comment\n```\n")
    assert shlex.split(line) == ["sightline", "train", "caption", "--data", "DATA"]
