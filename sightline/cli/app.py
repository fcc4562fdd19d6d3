"""The commands, put together. Each is imported when it is called: PyTorch takes its time."""

from typing import Annotated, Any

import typer
from typer.main import get_command

import sightline
from sightline.cli.commands import CONTEXT, Group, LazyCommand
from sightline.tasks.registry import kinds, summary, task_of

__all__ = ["app"]

_HELP = "Attention, from the equation to the trained model, and a line of sight into any of them."


def _version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"sightline {sightline.__version__}")
        raise typer.Exit
    return wanted


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
        ("data", "Check data before training on it.", _data),
        ("positions", "Draw sinusoidal positions as a heatmap.", _positions),
        ("bench", "Side-by-side measurements against peers.", _bench),
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


def _data() -> Any:
    from sightline.cli.data import group  # noqa: PLC0415

    return group()


def _positions() -> Any:
    from sightline.cli.positions import command  # noqa: PLC0415

    return command()


def _bench() -> Any:
    from sightline.cli.bench import group  # noqa: PLC0415

    return group()
