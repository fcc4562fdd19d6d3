"""``sightline KIND RUN INPUT... --out results.parquet``: any number of inputs into one table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sightline.cli.outputs import check_place, print_line, print_paths
from sightline.launch import process_share
from sightline.tasks.bulk import BulkProgress, predict_bulk, share_device
from sightline.tasks.bulk_inputs import bulk_inputs
from sightline.tasks.bulk_parts import FORMATS
from sightline.tasks.run import open_run

__all__ = ["is_table", "write_table"]


def is_table(out: Path | None) -> bool:
    """Whether the predictions go into a table."""
    return out is not None and out.suffix.lower() in FORMATS


def write_table(
    run: Path,
    places: Sequence[str],
    out: Path,
    *,
    device: str | None,
    force: bool,
    settings: dict[str, Any],
) -> None:
    """Predict this process's share, say how far all of them are, and merge when all is there."""
    share = process_share()
    check_place(out)
    opened = open_run(run, share_device(device), force=force)
    inputs = bulk_inputs(opened, places)
    result = predict_bulk(
        opened, inputs, out, share=share, on_progress=_print_progress if share[0] == 0 else None, **settings
    )
    if result.errors:
        of = f" of process {share[0]}" if share[1] > 1 else ""
        print_line(f"{result.errors:,} inputs{of} could not be predicted; column error says why", err=True)
    if result.merged or (result.finished and share[0] == 0 and not result.written):
        print_paths([out])


def _print_progress(progress: BulkProgress) -> None:
    """How many inputs are done, how many a second, how long the rest takes."""
    left = "" if progress.left is None else f", {_duration(progress.left)} left"
    print_line(
        f"{progress.done:,} of {progress.total:,} inputs, {progress.rate:,.1f} a second{left}", err=True
    )


def _duration(seconds: float) -> str:
    """How long, as people say it.

    Example:
        >>> _duration(3.2), _duration(200), _duration(7300)
        ('3 s', '3 min 20 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return (
        f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
    )
