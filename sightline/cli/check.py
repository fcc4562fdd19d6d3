"""``sightline check``: whether a run is as its training left it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sightline.border import shown_bytes
from sightline.cli.app import make_command
from sightline.cli.outputs import print_json, print_line
from sightline.models.manifest import write_manifest
from sightline.models.run_folder import read_config
from sightline.tasks.verify import verify_run

__all__ = ["command"]


def check(
    run: Annotated[Path, typer.Argument(help="A folder that `sightline train` wrote.", metavar="RUN")],
    write: Annotated[
        bool,
        typer.Option("--write", help="First vouch for the files as they are now.", metavar=""),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, no sentences.", metavar="")
    ] = False,
) -> None:
    """Check that a run is as its training left it.

    Every file is held against the digest that was written when the training ended; checkpoints are read, and
    the model is opened. The exit code is 2 if anything is wrong.
    """
    if write:
        read_config(run)  # refuses what is no run
        write_manifest(run)
    found = verify_run(run)
    if as_json:
        content = {"kind": found.kind, "files": found.n_files, "bytes": found.n_bytes}
        print_json(content | {"problems": list(found.problems)})
    elif not found.problems:
        files = f"{found.n_files} files, {shown_bytes(found.n_bytes)}"
        print_line(f"{run}: a run of kind {found.kind!r}; {files}, as they were written")
    for problem in () if as_json else found.problems:
        print_line(problem, err=True)
    if found.problems:
        raise typer.Exit(2)


def command() -> Any:
    """``sightline check``."""
    return make_command(check, name="check")
