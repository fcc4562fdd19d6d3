"""``sightline look``: where a model looked, as a table, a figure or a page."""

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from sightline import show
from sightline.cli import look_model
from sightline.cli.app import make_command
from sightline.cli.options import Fields, FieldValues
from sightline.cli.outputs import (
    PAGES,
    check_output,
    output_names,
    plain_text,
    print_json,
    print_paths,
    save_figure,
    save_text,
)
from sightline.cli.predict import read_inputs
from sightline.messages import flag, listing
from sightline.tasks.attention import Attention, Grid
from sightline.tasks.prediction import Prediction
from sightline.tasks.registry import kinds, task_of
from sightline.tasks.run import Run, is_run, open_run
from sightline.watch.names import matches

__all__ = ["command"]

_OPTIONS = "options"
_LONGEST_NAME = 4096  # a longer text is no name of a file


def command() -> Any:
    """``sightline look``."""
    fields = Fields()
    owners = {
        kind: {field.name for field in dataclasses.fields(task_of(kind).predict_options)} for kind in kinds()
    }
    fields.add(_OPTIONS, _SearchOptions, "Options of some tasks")

    def look(
        target: Annotated[
            Path,
            typer.Argument(
                metavar="RUN|FOLDER", help="A run that `sightline train` wrote, or a Hugging Face folder."
            ),
        ],
        inputs: Annotated[
            list[str],
            typer.Argument(
                metavar="INPUT...",
                help="What it reads: images, texts, files of text, or - for standard input; one or more.",
            ),
        ],
        field_values: FieldValues,
        out: Annotated[
            Path | None,
            typer.Option(
                help="A page (.html) or a figure (.png, .svg, ...) to write; a folder for several inputs."
            ),
        ] = None,
        layer: Annotated[
            str | None,
            typer.Option(
                metavar="PATTERN",
                help="Only layers of this name, such as '*.3.*' or 'layer.3'; of a run, a number: 0 is the "
                "first layer of what its prediction looked at.",
            ),
        ] = None,
        head: Annotated[
            int | None,
            typer.Option(help="A run: one head, of --layer, else counted through all layers."),
        ] = None,
        device: Annotated[str | None, typer.Option(help="A run: where; a GPU if there is one.")] = None,
        force: Annotated[
            bool,
            typer.Option("--force", help="A run: open it though its files were changed.", metavar=""),
        ] = False,
        as_json: Annotated[
            bool, typer.Option("--json", help="Print one JSON object, no table.", metavar="")
        ] = False,
    ) -> None:
        """Run a model once over its input, and show where it looked.

        Of a run: where it looked for all that it predicted. Of a Hugging Face folder: a table of all heads; a
        figure shows the heads of --layer, else the entropy by layer and head.
        """
        if out is not None:
            _check_out(out, inputs)
        options = field_values.get(_OPTIONS, {})
        if not is_run(target):
            for name, value in (
                ("head", head),
                ("device", device),
                ("force", force or None),
                *options.items(),
            ):
                if value is not None:
                    raise ValueError(
                        f"{flag(name)} is for runs that `sightline train` wrote, got {value} for "
                        f"{str(target)!r}"
                    )
            read = look_model.read_inputs(inputs)
            empty = next((x for x in read if isinstance(x, str) and not x.strip()), None)
            if empty is not None:
                raise ValueError(f"look needs a text to read, got {empty!r}")
            look_model.look(target, read, layer, out, as_json=as_json, typed=inputs)
            return
        run = open_run(target, device, force=force)
        for name in options:
            if name not in owners[run.kind]:
                takers = listing([repr(kind) for kind in kinds() if name in owners[kind]])
                raise ValueError(
                    f"{flag(name)} is for runs of kind {takers}, {str(target)!r} is of kind {run.kind!r}; "
                    "leave it out"
                )
        _look_at_all(run, inputs, options, layer, head, out, as_json=as_json)

    return make_command(fields.on(look), name="look")


def _check_out(out: Path, inputs: list[str]) -> None:
    """Refuse a name that can't hold what these inputs give, before any work is done."""
    if len(inputs) == 1:
        check_output(out, folders=False)
    elif out.suffix:
        raise ValueError(
            f"a page or a figure shows one input, got {len(inputs)} and --out {str(out)!r}; name a folder"
        )
    else:
        check_output(out, len(inputs))


def _look_at_all(
    run: Run,
    inputs: list[str],
    options: Mapping[str, Any],
    layer: str | None,
    head: int | None,
    out: Path | None,
    *,
    as_json: bool,
) -> None:
    """Predict for all inputs, and show each."""
    read = [x for text in inputs for x in _one(read_inputs(run.task, [_text_of(run, text)]), run.kind)]
    predictions = list(run.predict(read, **{**run.task.look_options, **options}))
    if len(predictions) == 1:
        look_run(run, predictions[0], layer, head, out, as_json=as_json)
        return
    objects = []
    for name, prediction in zip(output_names(read), predictions, strict=True):
        if as_json:
            objects.append(run.task.look_json(prediction, _chosen(run, prediction, layer, head)[0]))
        else:
            _print_run(run, prediction, layer, head)
        if out is not None:
            _write(run, prediction, layer, head, out / f"{name}.html")
    if as_json:
        print_json({"inputs": objects}, indent=None)


def _text_of(run: Run, text: str) -> str:
    """What a file of text holds, where a run reads texts; else as it was typed."""
    if run.task.input_is_file or text == "-":
        return text
    (read,) = look_model.read_inputs([text]) if len(text) < _LONGEST_NAME else (text,)
    return " ".join(read.split("\n")).strip() if isinstance(read, str) else text


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _SearchOptions:
    """Options of a prediction that a look takes too."""

    beam: int | None = None


def look_run(
    run: Run,
    prediction: Prediction,
    layer: str | None,
    head: int | None,
    out: Path | None,
    *,
    as_json: bool,
) -> None:
    """Show where a run looked: a table or JSON on standard output, and a file if one is named."""
    if out is not None:
        _check_drawable(prediction)
    if as_json:
        layers, _ = _chosen(run, prediction, layer, head)
        print_json(run.task.look_json(prediction, layers), indent=None)
    else:
        _print_run(run, prediction, layer, head)
    if out is not None:
        _write(run, prediction, layer, head, out)


def _print_run(run: Run, prediction: Prediction, layer: str | None, head: int | None) -> None:
    layers, chosen = _chosen(run, prediction, layer, head)
    _print(prediction, layers if chosen is None else {"": chosen})


def _check_drawable(prediction: Prediction) -> None:
    if prediction.attention is None or not prediction.attention.queries:
        raise ValueError(
            f"nothing was predicted for {str(prediction.input)!r}, there is nothing to draw; train longer"
        )


def _write(run: Run, prediction: Prediction, layer: str | None, head: int | None, out: Path) -> None:
    """A page, or a figure of one layer."""
    _check_drawable(prediction)
    layers, chosen = _chosen(run, prediction, layer, head)
    if out.suffix.lower() in PAGES:
        save_text(_page(run, prediction, layers, chosen).html(), out)
    elif chosen is None and len(layers) > 1:
        raise ValueError(
            f"a figure shows one layer, --layer {layer!r} fits {len(layers)}: {', '.join(layers)}; name one "
            "of them, or write a page with --out page.html"
        )
    elif chosen is not None:
        number = None if layer is None else int(layer)
        save_figure(show.prediction(prediction, layer=number, head=head), out)
    else:
        ((name, attention),) = layers.items()
        by_heads = 0 if head is None else None
        save_figure(_figure(prediction, attention, by_heads, f"{prediction.text}: {name}"), out)
    print_paths([out])


def _page(
    run: Run, prediction: Prediction, layers: Mapping[str, Attention], chosen: Attention | None
) -> show.Page:
    """The views of what was chosen; of all of it, the summary first."""
    is_all = chosen is not None and chosen is prediction.attention
    return show.page(
        layers if chosen is None else dataclasses.replace(prediction, attention=chosen),
        layers=layers if is_all else None,
        title=prediction.text,
        model=f"{run.folder.name}: a run of kind {run.kind}",
        steps=run.steps(prediction) if chosen is not None else None,
        figures=run.task.look_figures(prediction, layers),
    )


def _figure(prediction: Prediction, attention: Attention, layer: int | None, title: str | None = None) -> Any:
    return show.prediction(dataclasses.replace(prediction, attention=attention), layer=layer, title=title)


def _one(inputs: list[Any], kind: str) -> list[Any]:
    if len(inputs) > 1:
        raise ValueError(
            f"look takes one text for each INPUT, got {len(inputs)} lines; `sightline {kind}` takes several"
        )
    return inputs


def _chosen(
    run: Run, prediction: Prediction, layer: str | None, head: int | None
) -> tuple[Mapping[str, Attention], Attention | None]:
    """The layers that were asked for by name, and the one attention to show, if there is one."""
    attention = prediction.attention
    assert attention is not None  # noqa: S101 - it was asked for
    if layer is None or layer.isdecimal():
        chosen = attention.select(layer=None if layer is None else int(layer), head=head)
        layers = run.layers(prediction) if layer is None and head is None else {chosen.summary_label: chosen}
        return layers, chosen
    layers = {name: found for name, found in run.layers(prediction).items() if matches(name, layer)}
    if not layers:
        raise ValueError(
            f"no layer of {str(run.folder)!r} matches {layer!r}; it has {', '.join(run.layers(prediction))}"
        )
    return {name: found.select(head=head) for name, found in layers.items()}, None


def _print(prediction: Prediction, layers: Mapping[str, Attention]) -> None:
    """What each query looked at most; of a single query, layer by layer and head by head."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    console.print(plain_text(f"{prediction.text} ({prediction.score:.3f})"))
    for name, attention in layers.items():
        table = Table(title=None, box=None, pad_edge=False)
        by_head = len(attention.queries) == 1 and attention.weights.shape[:2].numel() > 1
        heads = ("layer", "head") if by_head else ("query",)
        for column in heads:
            table.add_column(column, no_wrap=True)
        for column in ("looked at", "weight", "entropy"):
            table.add_column(column, justify="right", no_wrap=True)
        for label, row in _rows(attention, by_head=by_head):
            at = int(row.argmax())
            entropy = -float((row * row.clamp_min(1e-30).log()).sum())
            cells = (_key(attention.keys, at), f"{float(row[at]):.3f}", f"{entropy:.2f}")
            table.add_row(*map(plain_text, label), *map(plain_text, cells))
        console.print(table)
        about = [x for x in (name, "" if by_head else attention.summary_label) if x]
        if isinstance(attention.keys, Grid):
            about.append(
                f"cells of {attention.keys.rows} x {attention.keys.columns} by row, column from the top left"
            )
        console.print(plain_text("; ".join([*about, "entropy in nats"])), soft_wrap=True)


def _rows(attention: Attention, *, by_head: bool) -> list[tuple[tuple[str, ...], Any]]:
    if by_head:
        n_layers, n_heads = attention.weights.shape[:2]
        return [
            ((str(i), str(h)), attention.weights[i, h, 0]) for i in range(n_layers) for h in range(n_heads)
        ]
    return [((query,), row) for query, row in zip(attention.queries, attention.summary, strict=True)]


def _key(keys: tuple[str, ...] | Grid, at: int) -> str:
    if isinstance(keys, Grid):
        row, column = divmod(at, keys.columns)
        return f"{row}, {column}"
    return keys[at]
