"""Flags made of settings: what is typed, what the help shows, whose setting a complaint is about."""

from dataclasses import dataclass

import pytest
import typer
from sightline.cli.fields import Group, settled, with_fields
from typer.testing import CliRunner

from sightline.settings import setting


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    feed: str = setting("context", "What is fed.")
    most: int | None = setting(7, "The most.")
    share: float = setting(0.5, "A share.")
    many: bool = setting(False, "Whether many.")

    def __post_init__(self):
        if self.share > 1:
            raise ValueError(f"share must be at most 1, got {self.share}")


GROUP = Group(part="train", kind=Settings, title="Second stage", prefix="sc_")


def run(*words, start=None):
    app, given_at = typer.Typer(), []

    @app.command()
    @with_fields([GROUP], start)
    def command(given):
        given_at.append(given["train"])

    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return given_at[0] if given_at else " ".join(result.output.replace("│", " ").split())


def test_none_is_a_word_where_a_setting_is_text_and_nothing_where_it_may_be_none():
    assert run("--sc-feed", "none", "--sc-most", "none") == {"feed": "none", "most": None}
    assert run() == {}


def test_the_help_shows_what_a_command_starts_from():
    assert "[default: (0.5)]" in run("--help")
    text = run("--help", start={"train": {"share": 0.25, "many": True, "most": None}})
    for shown in ("(0.25)", "(sc-many)", "(none)", "(context)"):
        assert shown in text


def test_a_complaint_about_a_prefixed_setting_says_whose_it_is():
    with pytest.raises(ValueError, match=r"^second stage: share must be at most 1, got 3\.0$"):
        settled([GROUP], {"train": {"share": 3}})
