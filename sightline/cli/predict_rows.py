"""``sightline KIND RUN INPUT... --out results.jsonl``: a line for each input, appended to what is there."""

import json
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sightline.cli.outputs import check_place, print_line, print_paths
from sightline.data.class_folders import is_image
from sightline.data.sources import Folder
from sightline.tasks.prediction import Prediction
from sightline.tasks.run import Run
from sightline.train.launch import launched
from sightline.untrusted import to_json

__all__ = ["check_rows", "is_rows", "write_rows"]


def is_rows(out: Path | None) -> bool:
    """Whether the predictions go into a file of lines."""
    return out is not None and out.suffix.lower() == ".jsonl"


def check_rows(out: Path) -> None:
    """Refuse a file that can't be written by this process, before any work is done."""
    check_place(out)
    if launched():
        raise ValueError(f"one process writes {str(out)!r}, and a launcher has started several; start one")


def write_rows(run: Run, inputs: Sequence[Any], out: Path, *, batch_size: int, **options: Any) -> None:
    """Predict what is not in the file yet and append it, a line for each input, as it is predicted.

    A killed run and the same command again give every input once; a line that was cut short is written anew.
    """
    done = _lines_there(out)
    left = []
    for one in _files(run, inputs):
        if done[str(one)]:
            done[str(one)] -= 1
        else:
            left.append(one)
    errors = 0
    with out.open("a", encoding="utf-8", buffering=1) as file:
        for one, found in _predicted(run, left, batch_size, options):
            file.write(to_json(_row(one, found), indent=None) + "\n")
            errors += isinstance(found, Exception)
    if errors:
        print_line(f"{errors:,} inputs could not be predicted; their error says why", err=True)
    print_paths([out])


def _lines_there(out: Path) -> Counter[str]:
    """How often each input is in the file; what was cut short at its end is taken away."""
    there: Counter[str] = Counter()
    if not out.exists():
        return there
    with out.open("rb+") as file:
        for number, line in enumerate(iter(file.readline, b""), 1):
            if not line.endswith(b"\n"):
                file.truncate(file.tell() - len(line))
                break
            try:
                there[json.loads(line)["input"]] += 1
            except (ValueError, KeyError, TypeError):
                raise ValueError(
                    f"line {number} of {str(out)!r} is not a prediction; name another --out"
                ) from None
    return there


def _files(run: Run, inputs: Sequence[Any]) -> Iterator[Any]:
    """The inputs, of a folder all images in it."""
    for one in inputs:
        if run.task.input_is_file and one.is_dir():
            yield from (one / name for name in Folder(one).names() if is_image(name))
        else:
            yield one


def _predicted(
    run: Run, inputs: Sequence[Any], batch_size: int, options: dict[str, Any]
) -> Iterator[tuple[Any, Prediction | Exception]]:
    """Each input with its prediction, or with why there is none."""
    taken: deque[Any] = deque()
    refused: dict[Any, Exception] = {}

    def take() -> Iterator[Any]:
        for one in inputs:
            taken.append(one)
            yield one

    how: dict[str, Any] = {"batch_size": batch_size, "on_error": refused.__setitem__, **options}
    for prediction in run.predict(take(), attention=False, **how):
        while taken[0] in refused:
            yield (one := taken.popleft()), refused[one]
        yield taken.popleft(), prediction
    yield from ((one, refused[one]) for one in taken)


def _row(one: Any, found: Prediction | Exception) -> dict[str, Any]:
    if isinstance(found, Exception):
        return {"input": str(one), "prediction": None, "error": " ".join(str(found).split())[:2000]}
    alternatives = [{"text": text, "score": score} for text, score in found.alternatives]
    return {"input": str(one), "prediction": found.text, "score": found.score, "alternatives": alternatives}
