"""``sightline demo``: the main job on the embedded set: train, evaluate, look; and a page that shows it."""

import dataclasses
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from sightline.cli.caption_run import CaptionRun, open_run
from sightline.cli.evaluate_caption import Answers, of_scenes, tell, tellings
from sightline.cli.fields import settled
from sightline.cli.files import replacing, save
from sightline.cli.mechanism import pictures
from sightline.cli.page import page
from sightline.cli.report_page import Report, report_page
from sightline.cli.runs import Asked, chosen_device
from sightline.cli.train import CAPTION, saved_or_preset
from sightline.evaluate.captions import score, scored
from sightline.evaluate.ranking import ranked
from sightline.models.run_folder import CONFIG
from sightline.show.curves import read_metrics
from sightline.tasks.caption.prepare import train_captioner
from sightline.train.folder import check_free

_SHOWN, _WORST, _EXAMPLES = 6, 3, 4
_INTRODUCTION = (
    "Attention mixes values, each query weighting them by how well it matches their keys. These four "
    "pictures show what goes in, what comes out, and what can be changed."
)


def demo(
    out: Annotated[
        Path | None, typer.Option(help="The folder to write to.", show_default="runs/demo or runs/mechanism")
    ] = None,
    preset: Annotated[
        str, typer.Option(help="Settings of the training: demo, or tiny for a quick look.")
    ] = "demo",
    seed: Annotated[int, typer.Option(help="Fixes everything that is random.")] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, if there is one.")
    ] = False,
    mechanism: Annotated[
        bool, typer.Option("--mechanism", help="Draw the mechanism in four pictures instead.")
    ] = False,
) -> None:
    """Train a captioner on drawn scenes, score it on unseen ones, and show where it looks, on one page."""
    if mechanism:
        typer.echo(_mechanism(out or Path("runs/mechanism")))
        return
    run, seconds = _trained(out or Path("runs/demo"), preset, seed, resume=resume)
    typer.echo(_report(run, seconds))


def _trained(out: Path, preset: str, seed: int, *, resume: bool) -> tuple[Path, float | None]:
    """Train as the preset says; the folder, and how long it took if all of it was trained now."""
    check_free(out, resume=resume)
    goes_on = (out / CONFIG).exists()
    score(["a"], [["a"]])  # says at once if what scores is not installed
    started = time.monotonic()
    base = saved_or_preset("caption", out, preset, resume=resume, typed=preset)
    settings = settled(CAPTION, base, {"data": {"source": "scenes"}, "train": {"seed": seed}})
    train_captioner(
        dataclasses.replace(settings["data"], augment=settings["augment"]),
        settings["model"],
        settings["train"],
        out,
        score=score,
        resume=resume,
    )
    return out, None if goes_on else time.monotonic() - started


def _report(folder: Path, seconds: float | None) -> Path:
    """Score the run on unseen scenes and write the page."""
    run = open_run(folder, chosen_device(None))
    captions = run.captions()
    asked = Asked(run=folder, wants_pictures=True, device=chosen_device(None))
    tested = tell(run, captions, captions.split("test"), asked)
    found = scored([said.text for said in tested.said], [record.captions for record in tested.records])
    worst = ranked(found.each["cider"], _WORST).worst
    report = Report(
        run=folder,
        facts=_facts(run, captions.splits()["train"], seconds),
        metrics=read_metrics(folder / "metrics.csv"),
        scores={**found.total, **of_scenes(run, tested)},
        about=f"{len(tested.records)} further scenes, five references each, beam {asked.beam}",
        signatures=found.signatures,
        shown=tellings(run, tested, found, range(min(_SHOWN, len(tested.records)))),
        worst=tellings(run, tested, found, worst),
        examples=_examples(folder / "examples", tested),
    )
    _print(report)
    path = folder / "report.html"
    with replacing(path) as beside:
        beside.write_text(report_page(report), encoding="utf-8")
    return path


def _facts(run: CaptionRun, n_train: int, seconds: float | None) -> str:
    n = sum(weight.numel() for weight in run.model.parameters())
    rows, columns = run.model.grid
    taken = "" if seconds is None else f", in {_duration(seconds)}"
    return (
        f"From {n_train:,} drawn scenes with five captions each, a model of {n / 1e6:.1f} million weights "
        f"learned to describe such pictures from nothing{taken}. It cuts a picture into "
        f"{rows} x {columns} patches and writes word after word, looking at the patches for each."
    )


def _duration(seconds: float) -> str:
    """A time as people say it.

    Example:
        >>> _duration(42.3), _duration(200)
        ('42 seconds', '3.3 minutes')
    """
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.1f} minutes"


def _examples(folder: Path, tested: Answers) -> list[Path]:
    """Some of the unseen pictures as files, to try other commands on."""
    from PIL import Image  # noqa: PLC0415

    assert tested.images is not None  # noqa: S101  asked for
    paths = [folder / f"{i}.png" for i in range(min(_EXAMPLES, len(tested.images)))]
    for path, image in zip(paths, tested.images, strict=False):
        with replacing(path) as beside:
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(beside)
    return paths


def _print(report: Report) -> None:
    console = Console(stderr=True, highlight=False)
    console.print(Text(f"on {report.about}:"))
    for name, value in report.scores.items():
        console.print(Text(f"  {name:20}{value:.4f}"))


def _mechanism(out: Path) -> Path:
    """The mechanism in four pictures, and a page that explains them."""
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
    return index
