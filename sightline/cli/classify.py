"""``sightline classify``: what a trained classifier sees in some pictures."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from torch import Tensor

from sightline.cli.classify_run import ClassRun, open_run, read_pictures
from sightline.cli.files import check_place, checked_picture, save
from sightline.cli.runs import chosen_device
from sightline.evaluate.glance import glance
from sightline.shapes import Float
from sightline.show.vit import rolled

Guess = tuple[str, float]  # a class and its probability


def classify(
    run: Annotated[
        Path, typer.Argument(help="A folder that `sightline train classify` wrote.", metavar="RUN")
    ],
    images: Annotated[list[Path], typer.Argument(help="Pictures.", metavar="IMAGE...")],
    top: Annotated[int, typer.Option(help="Guesses for each picture, best first.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where it looked: a figure (.png, ...), or a folder for those of several pictures."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    device: Annotated[str | None, typer.Option(help="Where to run; a GPU if there is one.")] = None,
) -> None:
    """Say the class of each picture, and draw the rollout of what it looked at."""
    if top < 1:
        raise ValueError(f"--top must be at least 1, got {top}")
    if out is not None:
        check_place(_figures(out, images)[0])
    opened = open_run(run, chosen_device(device))
    pictures = read_pictures(images, opened)
    found = guesses(opened.model.predict(pictures, views=opened.data.views), opened.names, top)
    if as_json:
        named = [
            {"image": str(path), "class": of[0][0], "guesses": dict(of)}
            for path, of in zip(images, found, strict=True)
        ]
        typer.echo(json.dumps({"classes": named}, indent=1, ensure_ascii=False))
    else:
        for path, of in zip(images, found, strict=True):
            typer.echo(f"{path}: " + ", ".join(f"{name} {share:.3f}" for name, share in of))
    if out is not None:
        for path in _write(opened, out, images, pictures, found):
            typer.echo(path, err=as_json)


def guesses(logits: Float[Tensor, "N V"], names: Sequence[str], top: int) -> list[list[Guess]]:
    """The best guesses of each image with their probabilities, best first.

    Example:
        >>> guesses(torch.tensor([[0.0, 0.0, 9.0]]), ["cat", "dog", "hen"], 1)[0][0][0]
        'hen'
    """
    best = logits.softmax(-1).topk(min(top, len(names)), dim=-1)
    return [
        [(names[i], share) for i, share in zip(places, shares, strict=True)]
        for places, shares in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def _figures(out: Path, images: Sequence[Path]) -> list[Path]:
    """What is written for each image: the figure that was named, or one each in a folder."""
    if not out.suffix or out.is_dir():
        return [out / f"{i}-{path.stem}.png" for i, path in enumerate(images)]
    if len(images) > 1:
        raise ValueError(
            f"one figure shows one image, got {len(images)} and --out {str(out)!r}; name a folder"
        )
    return [checked_picture(out)]


def _write(
    run: ClassRun, out: Path, images: Sequence[Path], pictures: Tensor, found: Sequence[Sequence[Guess]]
) -> list[Path]:
    written = _figures(out, images)
    seen = glance(run.model, pictures)
    for i, path in enumerate(written):
        name, share = found[i][0]
        save(rolled(pictures[i], seen, item=i, title=f"{name} {share:.2f}"), path)
    return written
