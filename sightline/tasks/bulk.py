"""Bulk prediction: any number of inputs, over any number of processes, killed and resumed at will.

    predict_bulk(run, bulk_inputs(run, ["photos/"]), Path("results.parquet"), beam=5)

Inputs are cut into parts of some hundred; part k belongs to process ``k % world``, which predicts it exactly
as any other would: batches begin anew with each part. So the result depends neither on how many processes
there are nor on kills, and what was written is never predicted again.
"""

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from sightline.data.batches import prefetch, seed_of
from sightline.tasks.attention import Attention
from sightline.tasks.bulk_inputs import BulkInputs
from sightline.tasks.bulk_parts import FORMATS, Parts
from sightline.tasks.prediction import Prediction
from sightline.tasks.run import Run
from sightline.train.processes import own_gpu

__all__ = ["BulkProgress", "BulkResult", "predict_bulk", "share_device"]

_PART = 256  # inputs of a part, of few inputs
_PARTS = 10_000  # of many inputs, there are about so many parts
_MOST_TOKENS = 4096  # of a row whose attention is told
_REPORT_EVERY = 5.0  # seconds
_WEIGHTS = ("config.json", "model.safetensors")


@dataclass(frozen=True, kw_only=True, slots=True)
class BulkProgress:
    """How far all processes are.

    Attributes:
        done: Inputs whose rows are written.
        total: All inputs.
        rate: Inputs a second since this process began, over all processes.
        left: Seconds that the rest takes at that rate; None while there is no rate.
    """

    done: int
    total: int
    rate: float
    left: float | None


class BulkResult(NamedTuple):
    """How a process ends.

    Attributes:
        finished: Whether the result is there; if not, others have parts to write, and the last one merges.
        merged: Whether this process has put it together.
        written: Rows that this process wrote.
        errors: How many of those say why there is no prediction.
    """

    finished: bool
    merged: bool
    written: int = 0
    errors: int = 0


def share_device(device: str | None) -> str | None:
    """The device of this process: of several GPUs the one that it was given, where none is named."""
    if device is None and "LOCAL_RANK" in os.environ and torch.cuda.device_count() > 1:
        return f"cuda:{own_gpu()}"
    return device


def predict_bulk(
    run: Run,
    inputs: BulkInputs,
    out: Path,
    *,
    attention: bool = False,
    batch_size: int = 64,
    share: tuple[int, int] = (0, 1),
    on_progress: Callable[[BulkProgress], None] | None = None,
    **options: Any,
) -> BulkResult:
    """Predict all inputs and write one table, a row an input, in their order.

    Args:
        run: The trained model.
        inputs: What :func:`~sightline.tasks.bulk_inputs.bulk_inputs` finds.
        out: The table: ``.jsonl`` or ``.parquet``; its parts lie in a folder beside it until all are there.
        attention: Whether rows tell, token by token, the peak of the attention's summary, where it is, and
            its entropy in nats.
        batch_size: Inputs that go through the model together.
        share: Which process this is, and of how many.
        on_progress: Called when a part is written, once in some seconds and at the end.
        options: Of the task: ``beam=5``.

    Returns:
        How it ended.

    Raises:
        ValueError: If an option is unknown, or the parts are those of another prediction.
    """
    if out.suffix.lower() not in FORMATS:
        raise ValueError(f"a table ends in one of {', '.join(FORMATS)}, got {str(out)!r}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    size = _part_size(len(inputs), batch_size)
    counts = [min(size, len(inputs) - first) for first in range(0, len(inputs), size)]
    plan = {
        "run": _digest(run.folder),
        "kind": run.kind,
        "options": {name: options[name] for name in sorted(options)},
        "attention": attention,
        "batch_size": batch_size,
        "n_inputs": len(inputs),
        "inputs": inputs.digest(),
    }
    parts = Parts(out, plan, counts, attention=attention)
    if parts.begin():
        return BulkResult(finished=True, merged=False)
    rank, world = share
    begun, before = time.monotonic(), parts.n_done()
    reported, written, errors = begun, 0, 0
    with parts.kept_for(rank, world):
        for number in range(rank, len(counts), world):
            if parts.is_there(number):
                continue
            if parts.is_done():  # another process has merged all parts, and removed them
                break
            places = range(number * size, number * size + counts[number])
            rows = _predict_part(run, inputs, places, number, attention, batch_size, options)
            parts.write(number, rows)
            written, errors = written + len(rows), errors + sum(row["error"] is not None for row in rows)
            now = time.monotonic()
            if on_progress is not None and (now - reported > _REPORT_EVERY or number + world >= len(counts)):
                on_progress(_progress(parts.n_done(), before, len(inputs), now - begun))
                reported = now
    merged = parts.merge()
    return BulkResult(merged or parts.is_done(), merged, written, errors)


def _progress(done: int, before: int, total: int, seconds: float) -> BulkProgress:
    rate = (done - before) / max(seconds, 1e-9)
    left = (total - done) / rate if rate else None
    return BulkProgress(done=done, total=total, rate=rate, left=left)


def _part_size(n: int, batch_size: int) -> int:
    """Inputs of a part: whole batches."""
    least = max(_PART, -(-n // _PARTS))
    return -(-least // batch_size) * batch_size


def _predict_part(
    run: Run,
    inputs: BulkInputs,
    places: range,
    number: int,
    attention: bool,
    batch_size: int,
    options: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """The rows of a part; inputs are read ahead, a batch at a time."""
    options = _seeded(run, options, number)

    def load(first: int) -> list[tuple[str, Any]]:
        return [_read(inputs, i) for i in range(first, min(first + batch_size, places.stop))]

    rows: list[dict[str, Any]] = []
    with prefetch(load, range(places.start, places.stop, batch_size), threads=1, depth=2) as batches:
        for batch in batches:
            rows += _predict_batch(run, batch, attention, options)
    return rows


def _read(inputs: BulkInputs, index: int) -> tuple[str, Any]:
    try:
        return inputs[index]
    except (ValueError, OSError) as problem:
        return inputs.name(index), problem


def _predict_batch(
    run: Run, batch: list[tuple[str, Any]], attention: bool, options: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """A row an input: its prediction, or why there is none."""
    refused: list[tuple[Any, Exception]] = []
    values = [value for _, value in batch if not isinstance(value, Exception)]
    predicted = list(
        run.predict(
            values,
            attention=attention,
            batch_size=max(1, len(values)),
            on_error=lambda value, problem: refused.append((value, problem)),
            **options,
        )
    )
    rest, wrong = iter(predicted), iter(refused)
    next_wrong = next(wrong, None)
    rows = []
    for name, value in batch:
        if isinstance(value, Exception):
            rows.append(_error_row(name, value, attention=attention))
        elif next_wrong is not None and value is next_wrong[0]:  # both are in the order of the batch
            rows.append(_error_row(name, next_wrong[1], attention=attention))
            next_wrong = next(wrong, None)
        else:
            rows.append(_row(name, next(rest), attention=attention))
    return rows


def _seeded(run: Run, options: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """The options of a part: where outputs are sampled, each part has a seed of its own."""
    if getattr(run.task.predict_options(**options), "sampling", None) is None:
        return options
    return {**options, "seed": seed_of(options.get("seed") or 0, "part", number) % (1 << 31)}


def _row(name: str, prediction: Prediction, *, attention: bool) -> dict[str, Any]:
    row = {
        "input": name,
        "prediction": prediction.text,
        "score": prediction.score,
        "alternatives": [{"text": text, "score": score} for text, score in prediction.alternatives],
        "error": None,
    }
    return row | (_looked(prediction.attention) if attention else {})


def _error_row(name: str, problem: Exception, *, attention: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "input": name,
        "prediction": None,
        "score": None,
        "alternatives": [],
        "error": " ".join(str(problem).split())[:2000],
    }
    return row | (_looked(None) if attention else {})


def _looked(attention: Attention | None) -> dict[str, Any]:
    """For each token written, the largest weight of the summary, the key that got it, and the entropy."""
    if attention is None:
        return {"tokens": [], "peak": [], "entropy": [], "peak_at": []}
    peak, at = attention.summary[:_MOST_TOKENS].max(-1)
    return {
        "tokens": list(attention.queries[:_MOST_TOKENS]),
        "peak": peak.tolist(),
        "entropy": attention.entropy[:_MOST_TOKENS].tolist(),
        "peak_at": at.tolist(),
    }


def _digest(folder: Path) -> str:
    """Names a run by its config and its weights."""
    found = hashlib.blake2b(digest_size=16)
    for name in _WEIGHTS:
        path = folder / name
        if path.is_file():
            with path.open("rb") as file:
                while content := file.read(1 << 20):
                    found.update(content)
    return found.hexdigest()
