"""``sightline evaluate``: how good a trained model is on data it has not seen."""

import json
import math
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sightline.cli.files import replacing
from sightline.cli.runs import Asked, Evaluated, chosen_device, for_kind, kind_in

_RUN = typer.Argument(help="A folder that `sightline train` wrote.", metavar="RUN")


def evaluate(
    run: Annotated[Path, _RUN],
    split: Annotated[str, typer.Option(help="Which split of the data; all takes every one.")] = "test",
    beam: Annotated[int, typer.Option(help="Width of the search; 1 is greedy.")] = 5,
    data: Annotated[
        str | None, typer.Option(help="Other data than the run's own: a folder, a zip, an embedded set.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Translation: the language to read, if not called as in the run.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Translation: the language to write, if not called as in the run.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A folder for scores.json and a gallery of the best and worst examples."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, no table.")] = False,
    most: Annotated[int | None, typer.Option(help="Only the first so many examples.")] = None,
    batch_size: Annotated[int, typer.Option(help="Examples that go through the model together.")] = 64,
    device: Annotated[str | None, typer.Option(help="Where to run; a GPU if there is one.")] = None,
    meteor: Annotated[bool, typer.Option("--meteor", help="Captions: METEOR too; needs Java.")] = False,
    ptb: Annotated[
        bool, typer.Option("--ptb", help="Captions: tokenise by the COCO evaluation's Java program.")
    ] = False,
) -> None:
    """Score a trained model on a split of its data, or on other data.

    Captions: bleu1 to bleu4, rouge_l, cider. Translation: bleu, chrf.
    Classes: accuracy, top5, ece. Embedded sets: also what only they tell.
    """
    for option, value in (("--beam", beam), ("--batch-size", batch_size), ("--most", most)):
        if value is not None and value < 1:
            raise ValueError(f"{option} must be at least 1, got {value}")
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"--out must be a folder, {str(out)!r} is a file")
    asked = Asked(
        run=run,
        split=split,
        beam=beam,
        data=data,
        source=source,
        target=target,
        most=most,
        batch_size=batch_size,
        device=chosen_device(device),
        wants_pictures=out is not None,
        extras=frozenset(name for name, on in (("meteor", meteor), ("ptb", ptb)) if on),
    )
    kind = kind_in(run)
    for option, language in (("--source", source), ("--target", target)):
        if language is not None and kind != "translate":
            raise ValueError(
                f"{option} is for runs of kind 'translate', {str(run)!r} is of kind {kind!r}; leave it out"
            )
    found = for_kind("evaluate", kind).evaluate(asked)
    if as_json:
        typer.echo(json.dumps(_plain(found), indent=1))
        _say(found)
    else:
        _print(found)
    if out is not None:
        for path in _write(found, out):
            typer.echo(path, err=as_json)


def _plain(found: Evaluated) -> dict[str, float | None]:
    """Scores that any JSON reader takes: it has no word for what is not a number."""
    return {name: value if math.isfinite(value) else None for name, value in found.scores.items()}


def _print(found: Evaluated) -> None:
    table = Table(title=None, box=None, pad_edge=False)
    table.add_column("score", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    if found.signatures:
        table.add_column("how it was computed", overflow="fold")
    for name, value in found.scores.items():
        cells = [name, f"{value:.4f}"]
        table.add_row(*cells, *([found.signatures.get(name, "")] if found.signatures else []))
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False)
    if found.about:
        console.print(found.about, soft_wrap=True)
    console.print(table)


def _say(found: Evaluated) -> None:
    """What a reader of bare numbers should know, where it does not disturb them."""
    for line in (found.about, *found.signatures.values()):
        if line:
            sys.stderr.write(line + "\n")


def _write(found: Evaluated, out: Path) -> list[Path]:
    scores = {"about": found.about, "scores": _plain(found), "signatures": dict(found.signatures)}
    files = {"scores.json": json.dumps(scores, indent=1, ensure_ascii=False) + "\n", **found.files}
    written = []
    for name, text in files.items():
        with replacing(out / name) as beside:
            beside.write_text(text, encoding="utf-8")
        written.append(out / name)
    return written
