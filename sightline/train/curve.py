"""The curve of a run: rows of numbers, as ``metrics.csv`` and for TensorBoard."""

import csv
import importlib.util
import io
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sightline.data.files import atomic_write, reason

__all__ = ["Curve"]

_FIRST = ("step", "epoch", "loss", "lr")
_HANDS_ON = ("tensorboard.summary.writer.event_file_writer",)


class Curve:
    """All rows so far; they travel in the checkpoints, so that a resumed run continues the same curve."""

    def __init__(self, folder: Path, rows: list[dict[str, Any]], *, tensorboard: bool) -> None:
        self.rows = rows
        self._path = folder / "metrics.csv"
        self._writer: Any = None
        self._told = threading.excepthook
        if tensorboard:
            threading.excepthook = _but_tensorboards(self._told)
            with self._without_tensorboard_if_full():
                self._writer = _writer(folder / "logs", rows[-1]["step"] + 1 if rows else 0)

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row and write it."""
        self.rows.append(dict(row))
        self.write()
        if self._writer is not None:
            with self._without_tensorboard_if_full():
                for name, value in row.items():
                    if name != "step":
                        self._writer.add_scalar(name.replace("val_", "val/", 1), value, int(row["step"]))

    def write(self) -> None:
        """Write ``metrics.csv`` as a whole: step, epoch, loss, lr, then scores in the order they came up."""
        names = dict.fromkeys(_FIRST)
        for row in self.rows:
            names.update(dict.fromkeys(row))
        text = io.StringIO()
        table = csv.DictWriter(text, list(names), restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        with atomic_write(self._path, remedy="make room and go on with --resume") as beside:
            beside.write_text(text.getvalue(), encoding="utf-8")

    def close(self) -> None:
        """Let TensorBoard's file go."""
        if self._writer is not None:
            with self._without_tensorboard_if_full():
                self._writer.close()
        threading.excepthook = self._told

    @contextmanager
    def _without_tensorboard_if_full(self) -> Iterator[None]:
        """Go on without it when its file can't be written: its thread hands the trouble on to its callers."""
        try:
            yield
        except OSError as problem:
            why = reason(problem)
            sys.stderr.write(f"no more curves for TensorBoard: {why}; metrics.csv goes on\n")
            self._writer = None


def _but_tensorboards(told: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same words about trouble in threads, but none about the one that TensorBoard hands on."""

    def tell(trouble: Any) -> None:
        if not (isinstance(trouble.exc_value, OSError) and type(trouble.thread).__module__ in _HANDS_ON):
            told(trouble)

    return tell


def _writer(folder: Path, purge_step: int) -> Any:
    if importlib.util.find_spec("tensorboard") is None:
        sys.stderr.write(
            "tensorboard is not installed: curves go to metrics.csv alone; pip install 'sightline[train]'\n"
        )
        return None
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

    return SummaryWriter(str(folder), purge_step=purge_step or None)
