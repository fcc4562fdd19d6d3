"""``sightline demo``: a folder of pictures that show the mechanism, and a page that explains them."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from sightline.cli.files import replacing, save
from sightline.cli.mechanism import pictures
from sightline.cli.page import page

_INTRODUCTION = (
    "Attention mixes values, each query weighting them by how well it matches their keys. These four "
    "pictures show what goes in, what comes out, and what can be changed."
)


def demo(
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("runs/demo"),
) -> None:
    """Show the mechanism: positions, an attention matrix, masks and scores, as pictures and one page."""
    console = Console()
    drawn = []
    for picture in pictures():
        path = out / f"{picture.name}.png"
        save(picture.figure, path)
        drawn.append((picture, path))
        console.print(Text(f"{path.name}: {picture.title.lower()}", style="bold"))
        console.print(Padding(Text(picture.caption), (0, 0, 1, 2)))
    index = out / "index.html"
    with replacing(index) as beside:
        beside.write_text(page("Attention, in four pictures", _INTRODUCTION, drawn), encoding="utf-8")
    typer.echo(index)
