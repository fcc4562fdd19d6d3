"""The curve of a run: rows of numbers, as ``metrics.csv`` and for TensorBoard."""

import csv
import importlib.util
import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sightline.data.files import replacing

__all__ = ["Curve"]

_FIRST = ("step", "epoch", "loss", "lr")


class Curve:
    """All rows so far; they travel in the checkpoints, so that a resumed run continues the same curve."""

    def __init__(self, folder: Path, rows: list[dict[str, Any]], *, tensorboard: bool) -> None:
        self.rows = rows
        self._path = folder / "metrics.csv"
        self._writer: Any = None
        if tensorboard:
            self._writer = _writer(folder / "logs", rows[-1]["step"] + 1 if rows else 0)

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row and write it."""
        self.rows.append(dict(row))
        self.write()
        if self._writer is not None:
            try:
                for name, value in row.items():
                    if name != "step":
                        self._writer.add_scalar(name.replace("val_", "val/", 1), value, int(row["step"]))
            except OSError as problem:  # its thread hands its trouble on here
                sys.stderr.write(f"no more curves for TensorBoard: {problem}; metrics.csv goes on\n")
                self._writer = None

    def write(self) -> None:
        """Write ``metrics.csv`` as a whole: step, epoch, loss, lr, then scores in the order they came up."""
        names = dict.fromkeys(_FIRST)
        for row in self.rows:
            names.update(dict.fromkeys(row))
        text = io.StringIO()
        table = csv.DictWriter(text, list(names), restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        with replacing(self._path, remedy="make room and go on with --resume") as beside:
            beside.write_text(text.getvalue(), encoding="utf-8")

    def close(self) -> None:
        """Let TensorBoard's file go."""
        if self._writer is not None:
            self._writer.close()


def _writer(folder: Path, purge_step: int) -> Any:
    if importlib.util.find_spec("tensorboard") is None:
        sys.stderr.write(
            "tensorboard is not installed: curves go to metrics.csv alone; pip install 'sightline[train]'\n"
        )
        return None
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

    return SummaryWriter(str(folder), purge_step=purge_step or None)
