"""What a run tells of itself: a bar and lines on standard error, ``metrics.csv``, curves for TensorBoard."""

import csv
import importlib.util
import io
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import nn

from sightline.data.files import atomic_write, reason
from sightline.messages import logger
from sightline.train.config import TrainConfig

__all__ = ["Curve", "Progress"]

_FEW_STEPS = 100
_ESTIMATE_AFTER = 3.0  # seconds of steps that a first guess of the time is made from


class Progress:
    """A bar where a person looks on, plain lines in a file; nothing in the other processes.

    Args:
        total: All steps of the stage.
        done: Those done before.
        title: Stands before the bar.
        shown: Whether to show anything.
    """

    def __init__(self, total: int, done: int, title: str, *, shown: bool) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
        from rich.progress import Progress as Bar  # noqa: PLC0415

        self._console = Console(stderr=True, highlight=False, quiet=not shown, soft_wrap=True)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[loss]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not (shown and self._console.is_terminal),
            transient=True,
        )
        self._task: Any = self._bar.add_task(title, total=total, completed=done, rate="", loss="")
        self._total = total
        self._first = self._done = done
        self._began = self._since = time.perf_counter()
        self._examples = 0
        self._estimated = False

    def __enter__(self) -> "Progress":  # noqa: PYI034  typing.Self can not be checked at run time
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def plan(
        self,
        batches: Sequence[Sequence[int]],
        config: TrainConfig,
        model: nn.Module,
        where: str,
        after: int | None,
    ) -> None:
        """Say what will be done, and whether that is too little to learn anything.

        Args:
            batches: Of the first epoch.
            config: Settings of the stage.
            model: What is trained.
            where: On which device.
            after: The step that a run goes on after; None for a new one.
        """
        n = sum(p.numel() for p in model.parameters() if p.requires_grad)
        a_step = "step" if len(batches) == 1 else "steps"
        start = "" if after is None else f"going on after step {after:,}: "
        self.print_line(
            f"{start}{sum(map(len, batches)):,} examples, {len(batches):,} {a_step} an epoch, "
            f"{self._total:,} steps in all; {n:,} trainable parameters, on {where}"
        )
        if self._total < _FEW_STEPS:
            remedy = (
                f"raise --steps {config.steps}"
                if self._total == config.steps
                else f"raise --epochs {config.epochs}, or lower --batch-size {config.batch_size},"
            )
            self.print_line(
                f"{self._total} steps are too few to learn much: {remedy} to make at least {_FEW_STEPS}"
            )

    def step(self, step: int, examples: int) -> None:
        """A step has been given to the device."""
        self._examples += examples
        self._done = step
        now = time.perf_counter()
        if now - self._since > 0.5:
            self._bar.update(self._task, rate=f"{self._examples / (now - self._began):,.0f} examples/s")
            self._since = now
        self._bar.update(self._task, completed=step)
        spent, done = now - self._began, step - self._first
        if not self._estimated and spent > _ESTIMATE_AFTER and done > 2:
            self._estimated = True
            self.print_line(
                f"about {_clock(spent / done * (self._total - step))} to go, evaluations not counted"
            )

    def describe(self, what: str) -> None:
        """Say beside the bar what is being done."""
        self._bar.update(self._task, description=what)

    def row(self, row: Mapping[str, Any], *, metric: str, best: bool, total_epochs: int) -> None:
        """An epoch has ended, perhaps with an evaluation: the losses, the metric, rate and time left."""
        if row.get("loss") is not None:
            self._bar.update(self._task, loss=f"loss {row['loss']:.3f}")
        spent = time.perf_counter() - self._began
        words = [f"epoch {int(row['epoch'])}/{total_epochs}"]
        names = {"loss": "loss", "reward": "reward", "val_loss": "val loss", f"val_{metric}": f"val {metric}"}
        words += [
            f"{label} {_short(row[name])}" for name, label in names.items() if row.get(name) is not None
        ]
        if self._done > self._first:
            left = spent / (self._done - self._first) * max(0, self._total - self._done)
            words += [f"{self._examples / spent:,.0f} examples/s", f"{_clock(left)} left"]
        self.print_line("  ".join(words) + ("  best" if best else ""))

    def print_line(self, sentence: str) -> None:
        """Print a line above the bar."""
        self._console.print(sentence, markup=False)


def _clock(seconds: float) -> str:
    """Minutes and seconds; of an hour or more, hours too.

    Example:
        >>> _clock(125.4), _clock(19779)
        ('2:05', '5:29:39')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _short(value: float) -> str:
    """Four digits, never an exponent.

    Example:
        >>> _short(0.123456), _short(12.34567), _short(1.25e-17)
        ('0.1235', '12.35', '0.0000')
    """
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


_FIRST = ("step", "epoch", "loss", "lr")
_TENSORBOARD_WRITER = "tensorboard.summary.writer.event_file_writer"


class Curve:
    """All rows so far; they travel in the checkpoints, so that a resumed run continues the same curve."""

    def __init__(self, folder: Path, rows: list[dict[str, Any]], *, tensorboard: bool) -> None:
        self.rows = rows
        self._path = folder / "metrics.csv"
        self._writer: Any = None
        self._excepthook = threading.excepthook
        if tensorboard:
            threading.excepthook = _except_tensorboard(self._excepthook)
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
        threading.excepthook = self._excepthook

    @contextmanager
    def _without_tensorboard_if_full(self) -> Iterator[None]:
        """Go on without it when its file can't be written: its thread hands the trouble on to its callers."""
        try:
            yield
        except OSError as problem:
            why = reason(problem)
            logger.warning("no more curves for TensorBoard: %s; metrics.csv goes on", why)
            self._writer = None


def _except_tensorboard(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A hook for exceptions in threads, but those of TensorBoard's writer, which its callers get."""

    def call(trouble: Any) -> None:
        is_writer = type(trouble.thread).__module__ == _TENSORBOARD_WRITER
        if not (is_writer and isinstance(trouble.exc_value, OSError)):
            hook(trouble)

    return call


def _writer(folder: Path, purge_step: int) -> Any:
    if importlib.util.find_spec("tensorboard") is None:
        logger.warning(
            "tensorboard is not installed: curves go to metrics.csv alone; pip install 'sightline[train]'"
        )
        return None
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

    return SummaryWriter(str(folder), purge_step=purge_step or None)
