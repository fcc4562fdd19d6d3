"""``sightline train KIND``: from data to a run folder."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from sightline.cli.app import CONTEXT, Group, LazyCommand, help_all, make_command
from sightline.cli.next_steps import print_next_steps
from sightline.cli.options import SWITCHES, Fields, FieldValues
from sightline.messages import listing
from sightline.tasks.configure import Request
from sightline.tasks.registry import kinds, summary, task_of
from sightline.tasks.task import Task
from sightline.tasks.training import train_task
from sightline.train.processes import is_main_process

__all__ = ["group"]

_DATA, _MODEL, _OUTPUT = "Data", "Model", "Output"


def group() -> Any:
    """``sightline train`` with a command for every task."""
    commands = Group(
        name="train",
        help="Train a model and leave a run folder.",
        no_args_is_help=True,
        context_settings=dict(CONTEXT),
    )
    for kind in kinds():
        commands.add_command(LazyCommand(kind, summary(kind), partial(_load, kind)))
    return commands


def _load(kind: str) -> Any:
    return command(task_of(kind))


def command(task: Task) -> Any:
    """``sightline train KIND``: its own options, and a flag for every setting of the task."""
    fields = Fields()
    start = task.presets.get("default", {})
    for part in task.parts:
        if part.switch is not None:
            fields.add_switch(part)
        variant = task.presets.get(f"default-{part.name}", {})  # a model of its own has its own defaults
        fields.add_part(part, variant.get("model") or start.get(part.name), without=task.no_flags(part))
    names = listing([name for name in task.presets if not _is_variant(task, name)])
    sets = "".join(f" {name}: {preset}." for name, preset in task.embedded.items())

    def train(
        field_values: FieldValues,
        out: Annotated[Path, typer.Option(help="The run folder to make.", rich_help_panel=_OUTPUT)],
        data: Annotated[str | None, typer.Option(help=task.data_help, rich_help_panel=_DATA)] = None,
        preset: Annotated[
            str | None,
            typer.Option(
                help=f"Settings to start from: {names}.{' By itself for' + sets if sets else ''}",
                rich_help_panel=_DATA,
            ),
        ] = None,
        model: Annotated[
            str | None,
            typer.Option(
                help=f"Which model: {listing(list(task.architectures), 'or')}.",
                rich_help_panel=_MODEL,
            ),
        ] = None,
        size: Annotated[
            str | None,
            typer.Option(
                help=f"Named widths and depth: {', '.join(task.sizes)}.",
                rich_help_panel=_MODEL,
            ),
        ] = None,
        start_from: Annotated[
            Path | None,
            typer.Option(
                "--from",
                help="Start from the weights of another run, as far as they fit.",
                rich_help_panel=_MODEL,
            ),
        ] = None,
        resume: Annotated[
            bool,
            typer.Option(
                "--resume",
                help="Go on with the run in --out; with more --epochs, beyond its end.",
                metavar="",
                rich_help_panel=_OUTPUT,
            ),
        ] = False,
        all_settings: Annotated[bool, help_all] = False,  # noqa: ARG001
    ) -> None:
        parts = frozenset(field_values.pop(SWITCHES, {}))
        request = Request(
            data=data,
            preset=preset,
            architecture=model,
            size=size,
            fields=field_values,
            parts=parts,
        )
        steps = train_task(task, request, out, resume=resume, start_from=start_from)
        if is_main_process():
            print_next_steps(task, out, steps)

    titles = dict.fromkeys([_DATA, _MODEL, *(part.title for part in task.parts), _OUTPUT])
    titles[_OUTPUT] = titles.pop(_OUTPUT)  # the last one
    absent = {"model": not task.architectures, "size": not task.sizes}
    without = frozenset(name for name, is_absent in absent.items() if is_absent)
    return make_command(
        fields.on(train, panels=list(titles), without=without), name=task.kind, help=task.train_help
    )


def _is_variant(task: Task, name: str) -> bool:
    return any(name.endswith(f"-{architecture}") for architecture in task.architectures)
