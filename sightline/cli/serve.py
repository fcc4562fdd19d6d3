"""``sightline serve``: a page for a model, on this machine's loopback address."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sightline.cli.app import make_command

__all__ = ["command"]

_HOST = "127.0.0.1"


def command() -> Any:
    """``sightline serve``."""

    def serve(
        target: Annotated[
            Path,
            typer.Argument(
                metavar="RUN|FOLDER", help="A run that `sightline train` wrote, or a Hugging Face folder."
            ),
        ],
        port: Annotated[int, typer.Option(help="Where to listen; 0 takes a free one.")] = 8017,
        host: Annotated[
            str,
            typer.Option(
                help="The address to listen on, such as 0.0.0.0 for all of this machine. The address that is "
                "printed has a token in it: who has it may use the page."
            ),
        ] = _HOST,
        name: Annotated[
            list[str] | None,
            typer.Option(help="A further name that browsers reach this machine by; again for more."),
        ] = None,
        device: Annotated[str | None, typer.Option(help="A run: where; a GPU if there is one.")] = None,
    ) -> None:
        """Serve a model as a page: give it an image or a text, and see what it attended to.

        Ctrl-C ends it.
        """
        from sightline.serve.model import open_model  # noqa: PLC0415 - an extra
        from sightline.serve.server import access_for, address_of, bind  # noqa: PLC0415
        from sightline.serve.server import serve as run  # noqa: PLC0415

        with bind(host, port) as listening:
            model = open_model(target, device)
            at = listening.getsockname()[1]
            access = access_for(host, tuple(name or ()))
            run(model, listening, access, ready=lambda: _print_address(address_of(host, at, access)))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # the model's thread can't be stopped, and to take PyTorch down takes seconds

    return make_command(serve, name="serve")


def _print_address(address: str) -> None:
    typer.echo(address)
    typer.echo("open it in a browser; Ctrl-C ends it", err=True)
    sys.stdout.flush()
