"""``sightline evaluate``: how good a trained model is on data it has not seen."""

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from sightline.cli.app import make_command
from sightline.cli.options import Fields, FieldValues
from sightline.cli.outputs import (
    FIGURES,
    PAGES,
    print_json,
    print_line,
    print_paths,
    save_text,
)
from sightline.evaluate.scores import rank
from sightline.messages import flag, listing
from sightline.show import curves, pages
from sightline.show.curves import read_metrics
from sightline.tasks.prediction import Evaluation
from sightline.tasks.registry import kinds, task_of
from sightline.tasks.run import Run, open_run
from sightline.tasks.task import Task
from sightline.train.processes import is_main_process, join
from sightline.untrusted import to_json

__all__ = ["command"]

_OPTIONS = "options"
_SHOWN = 8  # best and worst predictions on a page


def command() -> Any:
    """``sightline evaluate`` with the options of every task."""
    fields, owners = Fields(), _owners()
    for kind in kinds():
        config = task_of(kind).evaluate_options
        known = frozenset(name for name, owner in owners.items() if owner[0] != kind)
        fields.add(_OPTIONS, config, "Options of some tasks", without=known)

    def evaluate(
        run: Annotated[Path, typer.Argument(help="A folder that `sightline train` wrote.", metavar="RUN")],
        field_values: FieldValues,
        split: Annotated[str, typer.Option(help="Which split of the data; all takes every one.")] = "test",
        data: Annotated[
            str | None, typer.Option(help="Other data than the run's own: a folder, a zip, an embedded set.")
        ] = None,
        out: Annotated[
            Path | None,
            typer.Option(help="A folder for results.html, scores.json and predictions.json."),
        ] = None,
        limit: Annotated[
            int | None, typer.Option("--limit", "--most", help="Only the first so many examples.")
        ] = None,
        batch_size: Annotated[int, typer.Option(help="Examples that go through the model together.")] = 64,
        as_json: Annotated[
            bool, typer.Option("--json", help="Print one JSON object, no table.", metavar="")
        ] = False,
        device: Annotated[str | None, typer.Option(help="Where to run; a GPU if there is one.")] = None,
        force: Annotated[
            bool,
            typer.Option("--force", help="Open a run whose files were changed after training.", metavar=""),
        ] = False,
    ) -> None:
        """Score a trained model on a split of its data, or on other data."""
        for name, value in (("batch_size", batch_size), ("limit", limit)):
            if value is not None and value < 1:
                raise ValueError(f"{flag(name)} must be at least 1, got {value}")
        if out is not None:
            _check_folder(out)
        options = field_values.get(_OPTIONS, {})
        join()
        opened = open_run(run, device, force=force)
        for name in options:
            if opened.kind not in owners[name]:
                raise ValueError(
                    f"{flag(name)} is for runs of kind {listing([repr(x) for x in owners[name]])}, "
                    f"{str(run)!r} is of kind {opened.kind!r}; leave it out"
                )
        with _progress(opened.task.unit) as progress:
            result = opened.evaluate(
                split,
                data=data,
                limit=limit,
                batch_size=batch_size,
                attention=out is not None,
                progress=progress,
                **options,
            )
        if is_main_process():
            _report(opened, result, out, as_json=as_json)

    metrics = "; ".join(f"{kind}: {_score_names(task_of(kind))}" for kind in kinds())
    purpose = f"Score a trained model on a split of its data, or on other data. Scores of {metrics}."
    return make_command(fields.on(evaluate), name="evaluate", help=purpose)


def _report(run: Run, result: Evaluation, out: Path | None, *, as_json: bool) -> None:
    """Print the scores and write the results."""
    if as_json:
        print_json(result.to_json())
        sys.stderr.write("\n".join([result.about, *dict.fromkeys(result.signatures.values())]) + "\n")
    else:
        _print(result)
    if out is not None:
        print_paths(write(run, result, out))


def _check_folder(out: Path) -> None:
    """Refuse the name of a file, there or not, before any work is done."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out must be a folder, {str(out)!r} is a file")
    if out.suffix.lower() in (*PAGES, *FIGURES) and not out.is_dir():
        raise ValueError(
            "--out must be a folder, for results.html, scores.json and predictions.json, got "
            f"{str(out)!r}; try {str(out.with_suffix(''))!r}"
        )


def write(run: Run, result: Evaluation, out: Path) -> list[Path]:
    """The page of results, the scores and the predictions."""
    scores = {
        "about": result.about,
        "scores": result.to_json(),
        "signatures": dict(result.signatures),
    }
    texts = {
        "results.html": results_page(run, result),
        "scores.json": to_json(scores, indent=1) + "\n",
        "predictions.json": result.predictions_json(),
        **result.tables,
    }
    for name, text in texts.items():
        save_text(text, out / name)
    return [out / name for name in texts]


def results_page(run: Run, result: Evaluation) -> str:
    """One page: scores, how it was trained, the best and the worst predictions, further figures."""
    metric, table = run.task.ranking, run.folder / "metrics.csv"
    sections = {"Some predictions": result.predictions[:_SHOWN]}
    if metric is not None and all(metric in p.metrics for p in result.predictions):
        order = rank([p.metrics[metric] for p in result.predictions], _SHOWN)
        sections = {
            f"The best by {metric}": [result.predictions[i] for i in order.best],
            "The worst": [result.predictions[i] for i in order.worst],
        }
    return pages.results_page(
        f"Results of {run.folder.name}",
        about=result.about,
        scores=result.scores,
        signatures=result.signatures,
        curves=curves(read_metrics(table)) if table.is_file() else None,
        sections=sections,
        figures={name: (draw(), caption) for name, (draw, caption) in result.figures.items()},
    )


def _score_names(task: Task) -> str:
    """The names of a task's scores, those that are not always there after their condition."""
    extra = [f"{when} {', '.join(names)}" for when, names in task.extra_scores.items()]
    return "; ".join([", ".join(task.scores), *extra])


def _owners() -> dict[str, list[str]]:
    """Which tasks have an option of an evaluation, by its name; the first one's help is shown."""
    owners: dict[str, list[str]] = {}
    for kind in kinds():
        for field in dataclasses.fields(task_of(kind).evaluate_options):
            owners.setdefault(field.name, []).append(kind)
    return owners


def _print(result: Evaluation) -> None:
    """One line a score, and each signature once."""
    print_line(result.about)
    width = max(map(len, result.scores))
    for name, value in result.scores.items():
        print_line(f"  {name:{width}}  {value:.4f}")
    groups: dict[str, list[str]] = {}
    for name, signature in result.signatures.items():
        groups.setdefault(signature, []).append(name)
    for signature, names in groups.items():
        print_line(f"{', '.join(names)}: {signature}")


@contextmanager
def _progress(unit: str) -> Iterator[Any]:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not (console.is_terminal and is_main_process())
    ) as bar:
        row = bar.add_task("reading the data")
        yield lambda n: bar.update(row, description=f"{n:,} {unit} done")
