"""Flags made of settings: what is typed, what the help shows."""

from dataclasses import dataclass

import pytest
import typer
from typer.testing import CliRunner

from sightline.cli.options import Fields
from sightline.settings import setting
from sightline.tasks.task import Part


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    feed: str = setting("context", "What is fed.")
    most: int | None = setting(7, "The most.")
    share: float = setting(0.5, "A share.", advanced=True)
    many: bool = setting(False, "Whether many.")


PART = Part(name="train", config=Settings, title="Second stage", prefix="sc_")


def run(*words, start=None):
    app, chosen, fields = typer.Typer(), [], Fields()
    fields.add_part(PART, start)

    def command(field_values):
        chosen.append(field_values.get("train", {}))

    app.command()(fields.on(command))
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return chosen[0] if chosen else " ".join(result.output.replace("│", " ").split())


def test_none_is_a_word_where_a_setting_is_text_and_nothing_where_it_may_be_none():
    assert run("--sc-feed", "none", "--sc-most", "none") == {"feed": "none", "most": None}
    assert run() == {}


def test_the_help_shows_what_a_command_starts_from():
    assert "The most (default: 7)." in run("--help")
    text = run("--help", start={"most": None, "many": True})
    for shown in ("(default: none)", "(default: sc-many)", "(default: context)"):
        assert shown in text


def test_an_advanced_setting_is_taken_and_not_shown():
    assert run("--sc-share", "0.25") == {"share": 0.25}
    assert "--sc-share" not in run("--help")


def test_two_fields_are_never_one_flag():
    fields = Fields()
    fields.add_part(PART)
    with pytest.raises(ValueError, match="--sc-feed of 'Second stage' is there twice"):
        fields.add_part(PART)
    with pytest.raises(ValueError, match="--sc-feed is there twice"):
        fields.on(lambda field_values, sc_feed: None)
