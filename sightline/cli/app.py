"""The commands, put together."""

from typing import Annotated

import typer

import sightline
from sightline.cli import bench, data, train
from sightline.cli.caption import caption
from sightline.cli.classify import classify
from sightline.cli.demo import demo
from sightline.cli.evaluate import evaluate
from sightline.cli.look import look
from sightline.cli.positions import positions
from sightline.cli.translate import translate

app = typer.Typer(
    help="Attention, from the equation to the trained model, and a line of sight into any of them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"sightline {sightline.__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Attention, from the equation to the trained model, and a line of sight into any of them."""


app.command()(demo)
app.command()(evaluate)
app.command()(caption)
app.command()(classify)
app.command()(translate)
app.command()(look)
app.command()(positions)
app.add_typer(train.gathered(), name="train")
app.add_typer(bench.app, name="bench")
app.add_typer(data.app, name="data")
