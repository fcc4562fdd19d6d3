"""The commands that pages show have the flags that they are shown with."""

import json
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = json.loads((ROOT / "tests/golden/flags.json").read_text(encoding="utf-8"))
BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
FLAG = re.compile(r"--[a-z][a-z-]*")

pytestmark = pytest.mark.plain


def commands_in(text):
    """The commands in blocks that a shell would take, without their comments."""
    for block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith(("sightline ", "$ sightline ")):
                yield re.split(r"\s{2,}|\s#", line.removeprefix("$ "))[0]


def flags_of(words):
    """The flags of a command."""
    options = COMMANDS[" ".join(["sightline", *words])]
    return {"--help", *FLAG.findall(" ".join(each.get("option", "") for each in options))}


def test_every_flag_of_a_command_on_a_page_exists():
    bad, count = [], 0
    for page in PAGES:
        for line in commands_in(page.read_text(encoding="utf-8")):
            words = line.split()[1:]
            if words[0].startswith("-"):
                continue
            for command in _spelled(words[:2] if words[0] in {"train", "data"} else words[:1]):
                count += 1
                known = flags_of(command)
                bad += [f"{page.name}: {line}: {flag}" for flag in FLAG.findall(line) if flag not in known]
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
