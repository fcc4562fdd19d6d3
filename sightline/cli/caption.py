"""``sightline caption``: what a trained captioner says of some pictures."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sightline import show
from sightline.cli.caption_run import CaptionRun, open_run, read_pictures, told
from sightline.cli.files import PICTURES, replacing, save
from sightline.cli.runs import chosen_device
from sightline.evaluate.said import Chance, Said, say
from sightline.show.gallery import gallery
from sightline.show.told import Told

_BEAM = 5
_PAGES = (".html", ".htm")


def caption(
    run: Annotated[
        Path, typer.Argument(help="A folder that `sightline train caption` wrote.", metavar="RUN")
    ],
    images: Annotated[list[Path], typer.Argument(help="Pictures.", metavar="IMAGE")],
    out: Annotated[
        Path | None,
        typer.Option(help="Where each word looked: a figure (.png, ...), a page (.html), or a folder."),
    ] = None,
    beam: Annotated[
        int | None, typer.Option(help="Width of the search; 1 is greedy.", show_default=str(_BEAM))
    ] = None,
    n_best: Annotated[int, typer.Option(help="Captions of each picture, best first.")] = 1,
    temperature: Annotated[
        float | None, typer.Option(help="Draw captions by chance: below 1 bolder, above 1 wilder.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="Draw each token among the so many likeliest only.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Draw each token among the likeliest that together reach this probability."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Fixes what is drawn.", show_default="0")] = None,
    head: Annotated[int | None, typer.Option(help="Show one head; by default the mean of all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    device: Annotated[str | None, typer.Option(help="Where to run; a GPU if there is one.")] = None,
) -> None:
    """Write a caption for each picture, and draw where the model looked for every word.

    Captions are searched for; with --temperature, --top-k, --top-p or --seed they are drawn by chance.
    """
    drawn = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    chance = _chance({name: value for name, value in drawn.items() if value is not None}, beam)
    width = _BEAM if beam is None else beam
    _check_counts(width, n_best, chance)
    if out is not None:
        _check_out(out, len(images))
    elif head is not None:
        raise ValueError(f"--head {head} is what a figure shows, and none is drawn; add --out figure.png")
    opened = open_run(run, chosen_device(device))
    pictures = read_pictures(images, opened.size)
    found = list(
        say(
            opened.model,
            opened.tokenizer,
            pictures,
            beam=width,
            n_best=n_best,
            chance=chance,
            look=out is not None,
        )
    )
    shown = [
        told(opened, picture, ranks[0], name=str(path))
        for path, picture, ranks in zip(images, pictures, found, strict=True)
        if out is not None
    ]
    for one in shown:
        one.maps(head)  # refuses a head that is not there, before anything is printed
    if as_json:
        typer.echo(json.dumps(_as_object(images, found), indent=1, ensure_ascii=False))
    else:
        for path, ranks in zip(images, found, strict=True):
            for said in ranks:
                typer.echo(f"{path}: {said.text}" + (f" ({said.score:.3f})" if n_best > 1 else ""))
    if out is not None:
        for path in _write(opened, out, images, shown, head):
            typer.echo(path, err=as_json)


def _chance(given: dict[str, Any], beam: int | None) -> Chance | None:
    """How captions are drawn, or None where none of its options was given."""
    if given and beam is not None:
        flags = ", ".join(f"--{name.replace('_', '-')} {value}" for name, value in given.items())
        raise ValueError(f"captions are searched for or drawn, got --beam {beam} and {flags}; give one up")
    return Chance(**given) if given else None


def _check_counts(beam: int, n_best: int, chance: Chance | None) -> None:
    if beam < 1:
        raise ValueError(f"--beam must be at least 1, got {beam}")
    if n_best < 1:
        raise ValueError(f"--n-best must be at least 1, got {n_best}")
    if chance is None and n_best > beam:
        raise ValueError(f"--n-best must be between 1 and --beam {beam}, got {n_best}; widen the beam")


def _as_object(images: Sequence[Path], found: Sequence[Sequence[Said]]) -> dict[str, Any]:
    return {
        "captions": [
            {
                "image": str(path),
                "caption": ranks[0].text,
                "n_best": [{"caption": said.text, "score": said.score} for said in ranks],
            }
            for path, ranks in zip(images, found, strict=True)
        ]
    }


def _check_out(out: Path, n: int) -> None:
    """Refuse a name that can't hold what was asked for, before any work is done."""
    suffix = out.suffix.lower()
    if suffix in PICTURES and n > 1:
        raise ValueError(
            f"one figure shows one image, got {n} and --out {str(out)!r}; name a page or a folder"
        )
    if suffix and suffix not in (*PICTURES, *_PAGES) and not out.is_dir():
        raise ValueError(
            f"--out must end in .html for a page, in one of {', '.join(PICTURES)} for a figure, or be a "
            f"folder, got {str(out)!r}"
        )


def _write(
    run: CaptionRun, out: Path, images: Sequence[Path], shown: Sequence[Told], head: int | None
) -> list[Path]:
    suffix = out.suffix.lower()
    if suffix in _PAGES:
        with replacing(out) as beside:
            beside.write_text(gallery(f"Captions by {run.folder.name}", {"": shown}), encoding="utf-8")
        return [out]
    if suffix in PICTURES:
        save(show.overlay(shown[0], head=head), out)
        return [out]
    written = [out / f"{name}.png" for name in _names(images)]
    for path, one in zip(written, shown, strict=True):
        save(show.overlay(one, head=head), path)
    return written


def _names(images: Sequence[Path]) -> list[str]:
    """A name for each picture's figure: its own, numbered where two are alike.

    Example:
        >>> _names([Path("a/x.jpg"), Path("b/x.png"), Path("y.jpg")])
        ['x-1', 'x-2', 'y']
    """
    count = Counter(path.stem for path in images)
    met: Counter[str] = Counter()
    names = []
    for path in images:
        met[path.stem] += 1
        names.append(path.stem if count[path.stem] == 1 else f"{path.stem}-{met[path.stem]}")
    return names
