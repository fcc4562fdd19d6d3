"""``sightline bench``: side-by-side measurements against peers."""

from typing import Annotated, Any

import typer
from typer.main import get_command

from sightline.bench.command import HELP, STANDARD_OUTPUT, run
from sightline.cli.app import Command, Group

app = typer.Typer(
    help="Side-by-side measurements against peers.", no_args_is_help=True, cls=Group, add_completion=False
)


class _BareJson(Command):
    """Lets ``--json`` stand alone, for standard output, as well as before a file's name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spelled = []
        for word, following in zip(args, [*args[1:], "--"], strict=True):
            spelled.append(word)
            if word == "--json" and following.startswith("--"):
                spelled.append(STANDARD_OUTPUT)
        return super().parse_args(ctx, spelled)


@app.callback()
def bench() -> None:
    """Side-by-side measurements against peers, in one run."""


def _command(name: str, purpose: str) -> None:
    """Add ``sightline bench NAME``; all benches take the same options."""

    def command(
        device: Annotated[str | None, typer.Option(help=HELP["device"])] = None,
        quick: Annotated[bool, typer.Option("--quick", help=HELP["quick"])] = False,
        json: Annotated[str | None, typer.Option(metavar="[FILE]", help=HELP["json"])] = None,
        only: Annotated[str | None, typer.Option(metavar="PATTERN", help=HELP["only"])] = None,
        model: Annotated[str | None, typer.Option(metavar="KIND", help=HELP["model"])] = None,
        budget: Annotated[float | None, typer.Option(metavar="SECONDS", help=HELP["budget"])] = None,
        busy: Annotated[bool, typer.Option("--busy", help=HELP["busy"])] = False,
    ) -> None:
        try:
            run(
                name,
                device=device,
                quick=quick,
                json_to=json,
                only=only,
                model=model,
                budget=budget,
                busy=busy,
            )
        except ValueError as problem:
            typer.echo(str(problem), err=True)
            raise typer.Exit(2) from None

    app.command(name, cls=_BareJson, help=purpose)(command)


_command(
    "attention",
    "Time sl.attention and sl.nn's modules beside torch's, check them against float64, measure memory.",
)
_command("look", "Time attention seen beside attention blind and beside eager attention; measure memory.")
_command("additive", "Time attention by additive scores beside the equation in PyTorch, eager and compiled.")
_command("decode", "Time beam search beside Hugging Face's generate and beside a loop without a cache.")
_command("train", "Time a step of the training loop beside the same model on torch.nn's layers.")
_command("watch", "Time whole models watched beside blind, and beside asking them for their weights.")


def group() -> Any:
    """``sightline bench``."""
    return get_command(app)
