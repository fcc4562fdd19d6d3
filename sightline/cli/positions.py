"""``sightline positions``: the heatmap of a table of sinusoidal positions."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sightline import show
from sightline.cli.app import make_command
from sightline.cli.outputs import check_figure, print_paths, save_figure
from sightline.positions import sinusoidal

__all__ = ["command"]

_LARGEST = 1 << 24  # numbers in a table; more than any figure has room for


def positions(
    length: Annotated[int, typer.Option(help="How many positions.")] = 64,
    d_model: Annotated[int, typer.Option(help="Width of the model.")] = 32,
    base: Annotated[
        float, typer.Option(help="Sets the longest wavelength, about 2π·base positions.")
    ] = 10000.0,
    out: Annotated[Path, typer.Option(help="The figure to write.")] = Path("heatmap.png"),
) -> None:
    """Draw sinusoidal positions as a heatmap: position down, embedding dimension across."""
    check_figure(out)
    for option, value in (("--length", length), ("--d-model", d_model)):
        if value < 1:
            raise ValueError(f"{option} must be at least 1, got {value}")
    if length * d_model > _LARGEST:
        raise ValueError(
            f"a heatmap has room for {_LARGEST} numbers, got --length {length} times --d-model {d_model}; "
            "draw a smaller one"
        )
    save_figure(show.positions(sinusoidal(length, d_model, base=base)), out)
    print_paths([out])


def command() -> Any:
    """``sightline positions``."""
    return make_command(positions, name="positions")
