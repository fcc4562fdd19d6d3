"""``sightline KIND RUN INPUT...``: what a trained model predicts, and where it looked."""

import dataclasses
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sightline import show
from sightline.cli.app import make_command
from sightline.cli.options import Fields, FieldValues
from sightline.cli.outputs import (
    FIGURES,
    PAGES,
    check_output,
    output_names,
    print_json,
    print_line,
    print_paths,
    save_figure,
    save_text,
)
from sightline.cli.predict_rows import check_rows, is_rows, write_rows
from sightline.messages import flag
from sightline.models.run_folder import kind_of
from sightline.show import pages
from sightline.tasks.prediction import Prediction
from sightline.tasks.run import Run, is_run, open_run
from sightline.tasks.task import Task

__all__ = ["command", "read_inputs"]

_OPTIONS = "options"


def command(task: Task) -> Any:
    """The command that predicts with runs of a task."""
    fields = Fields()
    fields.add(_OPTIONS, task.predict_options, "Prediction")

    def predict(
        run: Annotated[
            Path, typer.Argument(help=f"A folder that `sightline train {task.kind}` wrote.", metavar="RUN")
        ],
        inputs: Annotated[list[str], typer.Argument(help=f"{task.inputs_help}", metavar=f"{task.inputs}...")],
        field_values: FieldValues,
        out: Annotated[
            Path | None,
            typer.Option(
                help="Where it looked: a figure (.png, ...), a page (.html), or a folder; or a line for each "
                "input (.jsonl), of a folder each image, added to those that are there."
            ),
        ] = None,
        layer: Annotated[int | None, typer.Option(help="Draw one layer, not the mean of all.")] = None,
        head: Annotated[
            int | None,
            typer.Option(help="Draw one head: of --layer, else counted through all layers."),
        ] = None,
        batch_size: Annotated[int, typer.Option(help="Inputs that go through the model together.")] = 64,
        as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.", metavar="")] = False,
        device: Annotated[str | None, typer.Option(help="Where to run; a GPU if there is one.")] = None,
        force: Annotated[
            bool,
            typer.Option("--force", help="Open a run whose files were changed after training.", metavar=""),
        ] = False,
    ) -> None:
        options = field_values.get(_OPTIONS, {})
        task.predict_options(**options)  # refuses bad values before anything is loaded
        _check_flags(out, layer=layer, head=head, as_json=as_json)
        read = read_inputs(task, inputs)
        if out is not None:
            check_rows(out) if is_rows(out) else check_output(out, len(read))
        check_kind(run, task)
        opened = open_run(run, device, force=force)
        if out is not None and is_rows(out):
            write_rows(opened, read, out, batch_size=batch_size, **options)
            return
        refused: dict[Any, Exception] = {}
        predictions = list(
            opened.predict(
                read,
                attention=out is not None,
                batch_size=batch_size,
                on_error=refused.__setitem__,
                **options,
            )
        )
        if len(refused) == len(read) == 1:
            raise refused[read[0]]
        if out is not None and (layer is not None or head is not None):
            predictions = [_selected(p, layer, head) for p in predictions]
        if as_json:
            print_json(task.predictions_json(predictions))
        else:
            _print(task, read, predictions, refused)
        if out is not None and predictions:
            print_paths(write(opened, out, read, predictions))
        if refused:
            _print_refused(task, read, refused)
            raise typer.Exit(1 if predictions else 2)

    return make_command(fields.on(predict), name=task.kind, help=task.predict_help)


def _check_flags(out: Path | None, *, layer: int | None, head: int | None, as_json: bool) -> None:
    """Refuse what does not go with what is written, before anything is loaded."""
    for name, value in (("layer", layer), ("head", head)):
        if value is not None and (out is None or is_rows(out)):
            raise ValueError(
                f"{flag(name)} {value} is what a figure shows, and none is drawn; add --out figure.png"
            )
    if as_json and is_rows(out):
        raise ValueError(f"predictions are printed or go into {str(out)!r}; leave out --json or --out")


def read_inputs(task: Task, inputs: Sequence[str]) -> list[Any]:
    """Inputs as they were typed: paths of files, or texts; ``-`` reads texts from standard input."""
    if task.input_is_file:
        return [Path(text) for text in inputs]
    read = [line for text in inputs for line in (_standard_input() if text == "-" else [text])]
    if not read:
        raise ValueError("there must be something to read, standard input was empty")
    return read


def check_kind(run: Path, task: Task) -> None:
    """Refuse a run of another kind, before anything of it is read."""
    if is_run(run) and (kind := kind_of(run)) != task.kind:
        raise ValueError(
            f"`sightline {task.kind}` takes a run of kind {task.kind!r}, {str(run)!r} is of kind {kind!r}; "
            f"call `sightline {kind}`"
        )


def write(run: Run, out: Path, inputs: Sequence[Any], predictions: Sequence[Prediction]) -> list[Path]:
    """A page of all predictions, a figure of one, or a folder with a figure each."""
    suffix = out.suffix.lower()
    if suffix in PAGES:
        title = f"{run.task.kind.capitalize()}: {run.folder.name}"
        save_text(pages.results_page(title, scores={}, sections={"": predictions}), out)
        return [out]
    predicted = {p.input for p in predictions}
    names = [name for name, x in zip(output_names(inputs), inputs, strict=True) if x in predicted]
    figures = [out] if suffix in FIGURES else [out / f"{name}.png" for name in names]
    for path, prediction in zip(figures, predictions, strict=True):
        save_figure(show.prediction(prediction), path)
    return figures


def _print(
    task: Task, inputs: Sequence[Any], predictions: Sequence[Prediction], refused: Mapping[Any, Exception]
) -> None:
    """The predictions in order; a text that was refused leaves an empty line, so that lines stay parallel."""
    rest = iter(predictions)
    for one in inputs:
        if one not in refused:
            for line in task.lines(next(rest)):
                print_line(line.replace("\n", "\\n"))  # of an image's name
        elif not task.input_is_file:
            print_line()


def _print_refused(task: Task, inputs: Sequence[Any], refused: Mapping[Any, Exception]) -> None:
    """A line for each input that was refused."""
    for number, one in enumerate(inputs, 1):
        if one in refused:
            where = f"{task.inputs.lower()} {number} of {len(inputs)}"
            print_line(f"left out {where}: {' '.join(str(refused[one]).split())}", err=True)


def _selected(prediction: Prediction, layer: int | None, head: int | None) -> Prediction:
    assert prediction.attention is not None  # noqa: S101 - it was asked for
    return dataclasses.replace(prediction, attention=prediction.attention.select(layer=layer, head=head))


def _standard_input() -> list[str]:
    text = sys.stdin.read().rstrip()
    return re.split(r"\r?\n", text) if text else []
