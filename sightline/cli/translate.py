"""``sightline translate``: what a trained translator makes of some texts."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sightline.cli.files import PICTURES, replacing, save
from sightline.cli.look_translate import check_written, page, picture
from sightline.cli.runs import chosen_device
from sightline.cli.translate_run import TranslateRun, open_run
from sightline.data.pair_files import lines
from sightline.decode.translations import Translation

_PAGES = (".html", ".htm")


def translate(
    run: Annotated[
        Path, typer.Argument(help="A folder that `sightline train translate` wrote.", metavar="RUN")
    ],
    texts: Annotated[
        list[str], typer.Argument(help="Sentences; - reads them from standard input.", metavar="TEXT...")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="What each word looked at: a figure (.png, ...), a page (.html), or a folder."),
    ] = None,
    beam: Annotated[int, typer.Option(help="Width of the search; 1 is greedy.")] = 5,
    head: Annotated[
        int | None,
        typer.Option(help="Draw one head, counted through the layers; by default the mean of all."),
    ] = None,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Read letters that training never saw as unknown.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    device: Annotated[str | None, typer.Option(help="Where to run; a GPU if there is one.")] = None,
) -> None:
    """Translate some sentences, and draw what the model looked at for every word."""
    if beam < 1:
        raise ValueError(f"--beam must be at least 1, got {beam}")
    if head is not None and out is None:
        raise ValueError(f"--head is drawn to a file, got --head {head} and no --out; add --out head.png")
    given = [line for text in texts for line in (lines(sys.stdin.read().rstrip()) if text == "-" else [text])]
    if not given:
        raise ValueError("there must be something to translate, standard input was empty")
    if out is not None:
        _check_out(out, len(given))
    opened = open_run(run, chosen_device(device))
    opened.check(given, unknown=unknown, remedy="leave it out, or read it as unknown with --unknown")
    found = opened.translate(given, width=beam, look=out is not None)
    if as_json:
        typer.echo(json.dumps(_as_object(found), indent=1, ensure_ascii=False))
    else:
        for one in found:
            typer.echo(one.text)
    if out is not None:
        for one in found:
            check_written(one)
        for path in _write(opened, out, found, head):
            typer.echo(path, err=True)


def _as_object(found: Sequence[Translation]) -> dict[str, Any]:
    rows = [{"source": one.source, "translation": one.text, "score": one.score} for one in found]
    return {"translations": rows}


def _check_out(out: Path, n: int) -> None:
    """Refuse a name that can't hold what was asked for, before any work is done."""
    suffix = out.suffix.lower()
    if suffix in (*PICTURES, *_PAGES) and n > 1:
        raise ValueError(f"one file shows one sentence, got {n} and --out {str(out)!r}; name a folder")
    if suffix and suffix not in (*PICTURES, *_PAGES) and not out.is_dir():
        raise ValueError(
            f"--out must end in .html for a page, in one of {', '.join(PICTURES)} for a figure, or be a "
            f"folder, got {str(out)!r}"
        )


def _write(run: TranslateRun, out: Path, found: Sequence[Translation], head: int | None) -> list[Path]:
    suffix = out.suffix.lower()
    if suffix in _PAGES:
        with replacing(out) as beside:
            beside.write_text(page(run, found[0], head), encoding="utf-8")
        return [out]
    paths = [out] if suffix in PICTURES else [out / f"{i}.png" for i in range(1, len(found) + 1)]
    for path, one in zip(paths, found, strict=True):
        save(picture(run, one, head), path)
    return paths
