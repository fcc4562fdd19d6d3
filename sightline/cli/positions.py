"""``sightline positions``: the heatmap of a table of sinusoidal positions."""

from pathlib import Path
from typing import Annotated

import typer

from sightline import show
from sightline.cli.files import checked_picture, save
from sightline.positions import sinusoidal

_MOST = 1 << 24  # numbers in a table; more than any picture has room for


def positions(
    length: Annotated[int, typer.Option(help="How many positions.")] = 64,
    d_model: Annotated[int, typer.Option(help="Width of the model.")] = 32,
    base: Annotated[
        float, typer.Option(help="Sets the longest wavelength, about 2π·base positions.")
    ] = 10000.0,
    out: Annotated[Path, typer.Option(help="The picture to write.")] = Path("heatmap.png"),
) -> None:
    """Draw sinusoidal positions as a heatmap: position down, embedding dimension across."""
    checked_picture(out)
    for option, value in (("--length", length), ("--d-model", d_model)):
        if value < 1:
            raise ValueError(f"{option} must be at least 1, got {value}")
    if length * d_model > _MOST:
        raise ValueError(
            f"a heatmap has room for {_MOST} numbers, got --length {length} times --d-model {d_model}; "
            "draw a smaller one"
        )
    save(show.positions(sinusoidal(length, d_model, base=base)), out)
    typer.echo(out)
