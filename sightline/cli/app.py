"""The commands, put together; each is imported when it is called, because PyTorch takes its time."""

from collections.abc import Callable
from typing import Annotated, Any

import rich  # noqa: F401 - what shows progress is looked for before any work is done
import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import sightline
from sightline.cli import Stopped
from sightline.tasks.registry import kinds, summary, task_of

__all__ = ["CONTEXT", "Command", "Group", "LazyCommand", "app", "help_all", "make_command"]

_HELP = "Attention, from the equation to the trained model, and a line of sight into any of them."


def _version(value: bool) -> bool:
    if value:
        typer.echo(f"sightline {sightline.__version__}")
        raise typer.Exit
    return value


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version.", metavar=""),
    ] = False,
) -> None:
    """Attention, from the equation to the trained model, and a line of sight into any of them."""


def app() -> Any:
    """``sightline`` with all its commands."""
    typed = typer.Typer(
        cls=Group,
        help=_HELP,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings=dict(CONTEXT),
    )
    typed.callback()(_options)
    group: Any = get_command(typed)
    commands = [
        (
            "demo",
            "Train a captioner on drawn scenes, evaluate it and show where it looks, on one page.",
            _demo,
        ),
        ("train", "Train a model and leave a run folder.", _train),
        ("evaluate", "Score a trained model on a split of its data, or on other data.", _evaluate),
        *((kind, summary(kind), lambda kind=kind: _predict(kind)) for kind in kinds()),
        ("look", "Run a model once over its input, and show where it looked.", _look),
        ("serve", "Serve a model as a page: give it an image or a text, and see where it looks.", _serve),
        ("data", "Check data before training on it.", _data),
        ("positions", "Draw sinusoidal positions as a heatmap.", _positions),
    ]
    for name, purpose, load in commands:
        group.add_command(LazyCommand(name, purpose, load))
    return group


def _demo() -> Any:
    from sightline.cli.demo import command  # noqa: PLC0415

    return command()


def _train() -> Any:
    from sightline.cli.train import group  # noqa: PLC0415

    return group()


def _evaluate() -> Any:
    from sightline.cli.evaluate import command  # noqa: PLC0415

    return command()


def _predict(kind: str) -> Any:
    from sightline.cli.predict import command  # noqa: PLC0415

    return command(task_of(kind))


def _look() -> Any:
    from sightline.cli.look import command  # noqa: PLC0415

    return command()


def _serve() -> Any:
    from sightline.cli.serve import command  # noqa: PLC0415

    return command()


def _data() -> Any:
    from sightline.cli.data import group  # noqa: PLC0415

    return group()


def _positions() -> Any:
    from sightline.cli.positions import command  # noqa: PLC0415

    return command()


_REMOVED = {  # commands that are gone, for one release: what to use instead
    "bench": "run `python -m benchmarks look` in the repository",
    "check": "opening a run (`sightline evaluate RUN`) checks the digests of its files",
    "exercise": "fill in course/NN_name/exercise.py of the repository, then run `pytest course/NN_name`",
}
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Command(TyperCommand):
    """A command whose switches show no type."""

    def get_help_option(self, ctx: Any) -> Any:
        """The help option, which takes no value and so shows none."""
        option = _without_type(super().get_help_option(ctx))
        panels = [getattr(parameter, "rich_help_panel", None) for parameter in self.params]
        if option is not None and any(panels):
            option.rich_help_panel = panels[-1]
        return option


class Group(TyperGroup):
    """A group of commands; the same for its own help option."""

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return a command by its name; for one that is gone, say what to use instead."""
        words = name if ctx.parent is None else f"{ctx.info_name} {name}"
        if words in _REMOVED:
            raise ValueError(f"`{ctx.command_path} {name}` was removed: {_REMOVED[words]}")
        return super().get_command(ctx, name)

    def invoke(self, ctx: Any) -> Any:
        """Run a command. Typer ends at a Ctrl-C by itself, where there is something to say first."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            raise Stopped(stopped) from stopped

    def get_help_option(self, ctx: Any) -> Any:
        """The help option, which takes no value and so shows none."""
        return _without_type(super().get_help_option(ctx))


class LazyCommand(Command):
    """A command that is imported when it is called: its name and its help are known before.

    Args:
        name: Of the command.
        help: One line.
        load: Imports and gives the command itself.
    """

    def __init__(self, name: str, help: str, load: Callable[[], Any]) -> None:  # noqa: A002
        super().__init__(name, help=help)
        self.load = load

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments by the command itself."""
        return self.load().make_context(info_name, args, parent=parent, **extra)


def make_command(function: Callable[..., None], *, name: str, help: str = "") -> Any:  # noqa: A002
    """A command from a function with annotated parameters."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(name, help=help or None, cls=Command, context_settings=dict(CONTEXT))(function)
    return get_command(app)


def _show_all(ctx: Any, value: bool) -> bool:
    if value:
        for parameter in ctx.command.params:
            parameter.hidden = False
        typer.echo(ctx.get_help())
        raise typer.Exit
    return value


help_all: Any = typer.Option(
    "--help-all",
    help="Show every setting, not only the common ones.",
    is_eager=True,
    callback=_show_all,
    metavar="",
    rich_help_panel="Output",
)


def _without_type(option: Any) -> Any:
    if option is not None:
        option.metavar = ""
        option.help = "Show this message."
    return option
