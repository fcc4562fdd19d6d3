"""``sightline demo``: train on the embedded set, evaluate, look; and a page that shows it."""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sightline.cli.app import make_command
from sightline.cli.mechanism import draw_pictures
from sightline.cli.next_steps import program
from sightline.cli.outputs import print_line, save_figure, save_text
from sightline.data.files import atomic_write
from sightline.evaluate.scores import rank
from sightline.models.run_folder import CONFIG
from sightline.show import pages
from sightline.show.caption_overlay import default_word
from sightline.show.curves import read_metrics
from sightline.show.walk import AttentionTrace
from sightline.tasks.attention import Grid
from sightline.tasks.caption.predict import CaptionPredictor
from sightline.tasks.configure import Request
from sightline.tasks.prediction import Evaluation, Example, Prediction
from sightline.tasks.registry import kinds, task_of
from sightline.tasks.run import Run, open_run
from sightline.tasks.training import train_task

__all__ = ["command"]

_DATA, _BEAM = "scenes", 5
_SHOWN, _WORST, _EXAMPLES = 6, 3, 4
_INTRODUCTION = (
    "Attention mixes values, each query weighting them by how well it matches their keys. These four "
    "pictures show what goes in, what comes out, and what can be changed."
)


def command() -> Any:
    """``sightline demo``."""

    def demo(
        out: Annotated[
            Path | None,
            typer.Option(help="The folder to write to.", show_default="runs/demo or runs/mechanism"),
        ] = None,
        preset: Annotated[
            str, typer.Option(help="Settings of the training: demo, or tiny for a quick look.")
        ] = "demo",
        seed: Annotated[int, typer.Option(help="Fixes everything that is random.")] = 0,
        resume: Annotated[
            bool, typer.Option("--resume", help="Go on with the run in --out, if there is one.", metavar="")
        ] = False,
        mechanism: Annotated[
            bool,
            typer.Option("--mechanism", help="Draw the mechanism in four pictures instead.", metavar=""),
        ] = False,
    ) -> None:
        """Train a captioner on drawn scenes, score it on unseen ones, and show it on one page."""
        if mechanism:
            print_line(_write_mechanism(out or Path("runs/mechanism")))
            return
        folder = out or Path("runs/demo")
        seconds = _train(folder, preset, seed, resume=resume)
        print_line(_write_report(open_run(folder), seconds))
        print_line(f"next:\n  {program()} serve {shlex.quote(str(folder))}", err=True)

    return make_command(demo, name="demo")


def _train(out: Path, preset: str, seed: int, *, resume: bool) -> float | None:
    """Train as the preset says; how long it took, if all of it was trained now."""
    goes_on = (out / CONFIG).exists()
    started = time.monotonic()
    request = Request(data=_DATA, preset=preset, fields={"train": {"seed": seed}})
    task = next(task for task in map(task_of, kinds()) if _DATA in task.embedded)
    train_task(task, request, out, resume=resume)
    return None if goes_on else time.monotonic() - started


def _write_report(run: Run, seconds: float | None) -> Path:
    """Score the run on unseen scenes and write the page."""
    result = run.evaluate("test", beam=_BEAM, attention=True)
    predictions = result.predictions
    worst = rank([p.metrics["cider"] for p in predictions], _WORST).worst
    about = f"{len(predictions)} further scenes, five references each, beam {_BEAM}"
    report = pages.DemoReport(
        run=run.folder,
        facts=_facts(run, _grid(predictions[0]), seconds),
        metrics=read_metrics(run.folder / "metrics.csv"),
        scores=result.scores,
        about=about,
        signatures=result.signatures,
        shown=predictions[:_SHOWN],
        worst=[predictions[i] for i in worst],
        examples=_save_examples(run.folder / "examples", predictions[:_EXAMPLES]),
        command=program(),
        walk=_walk(run, predictions),
    )
    _print(about, result)
    path = run.folder / "report.html"
    save_text(pages.report_page(report), path)
    return path


def _walk(run: Run, predictions: Sequence[Prediction]) -> AttentionTrace | None:
    """One word of one of the captions, of a thing in the picture if it can be, walked through."""
    assert isinstance(run.predictor, CaptionPredictor)  # noqa: S101 - the demo writes captions
    for p in (p for p in predictions[:_SHOWN] if p.attention is not None and p.attention.queries):
        assert p.attention is not None  # noqa: S101
        grid = _grid(p)
        word = default_word(p.attention.queries, p.attention.summary, grid.boxes)
        example = Example(input=p.input, value=grid.image)
        found = None if word is None else run.predictor.walk(example, p, word)
        if found is not None:
            return found
    return None


def _facts(run: Run, grid: Grid, seconds: float | None) -> str:
    n = sum(weight.numel() for weight in run.model.parameters())
    n_train = run.dataset().splits()["train"]
    taken = "" if seconds is None else f", in {_duration(seconds)}"
    return (
        f"From {n_train:,} drawn scenes with five captions each, a model of {n / 1e6:.1f} million weights "
        f"learned to describe such pictures from nothing{taken}. It cuts a picture into "
        f"{grid.rows} x {grid.columns} patches and writes word after word, looking at the patches for each."
    )


def _duration(seconds: float) -> str:
    """A time as people say it.

    Example:
        >>> _duration(42.3), _duration(200)
        ('42 seconds', '3.3 minutes')
    """
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.1f} minutes"


def _save_examples(folder: Path, predictions: Sequence[Prediction]) -> list[Path]:
    """Some of the unseen images as files, to try other commands on."""
    from PIL import Image  # noqa: PLC0415

    paths = []
    for i, p in enumerate(predictions):
        paths.append(folder / f"{i}.png")
        with atomic_write(paths[-1]) as beside:
            Image.fromarray(_grid(p).image.permute(1, 2, 0).numpy()).save(beside)
    return paths


def _grid(prediction: Prediction) -> Grid:
    """The image that a caption was written about, and its patches."""
    assert prediction.attention is not None  # noqa: S101 - it was asked for
    assert isinstance(prediction.attention.keys, Grid)  # noqa: S101 - words look at an image
    return prediction.attention.keys


def _print(about: str, result: Evaluation) -> None:
    print_line(f"on {about}:", err=True)
    for name, value in result.scores.items():
        print_line(f"  {name:20}{value:.4f}", err=True)


def _write_mechanism(out: Path) -> Path:
    """The mechanism in four pictures, and a page that explains them."""
    from rich.console import Console  # noqa: PLC0415
    from rich.padding import Padding  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console, pictures = Console(), draw_pictures()
    for picture in pictures:
        path = out / f"{picture.name}.png"
        save_figure(picture.figure, path)
        console.print(Text(f"{path.name}: {picture.title.lower()}", style="bold"))
        console.print(Padding(Text(picture.caption), (0, 0, 1, 2)))
    figures = {picture.title: (picture.figure, picture.caption) for picture in pictures}
    index = out / "index.html"
    save_text(pages.figures_page("Attention, in four pictures", _INTRODUCTION, figures), index)
    return index
