"""The curves of a training run, from its ``metrics.csv``."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sightline.look.palette import LINES
from sightline.show.fonts import FallbackFontFigure
from sightline.show.style import SOFT, style

__all__ = ["curves", "read_metrics"]

Curve = Sequence[tuple[float, float]]  # (step, value), in order
_NOT_SCORES = ("step", "epoch", "lr", "perplexity")  # perplexity is the loss again
_LOSSES = {"loss": "in training", "val_loss": "on unseen data", "reward": "in training"}
_REWARD = "Reward in training, self-critical stage"
_SHARE = 1.05  # a score beyond this is not a share of one
_MANY = 60  # points, beyond which the running mean is drawn


def read_metrics(path: Path) -> dict[str, list[tuple[float, float]]]:
    r"""Read the columns of a run's ``metrics.csv``, each as a list of (step, value), empty cells left out.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If there is no column ``step``, or a cell is not a number.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "metrics.csv"
        >>> _ = path.write_text("step,epoch,loss,cider\n10,0,2.5,\n20,1,1.5,0.75\n")
        >>> read_metrics(path)["cider"]
        [(20.0, 0.75)]
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no {path.name} in {str(path.parent)!r}; was anything trained there?"
        )
    with path.open(encoding="utf-8", newline="") as file:
        table = csv.DictReader(file)
        names = [name for name in table.fieldnames or [] if name != "step"]
        if "step" not in (table.fieldnames or []):
            raise ValueError(f"{str(path)!r} must have a column 'step', got {table.fieldnames}")
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        for line, row in enumerate(table, start=2):
            for name in names:
                if row[name]:
                    found[name].append((_number(row["step"], path, line), _number(row[name], path, line)))
    return found


def curves(metrics: Mapping[str, Curve], *, title: str | None = None, stacked: bool = False) -> Figure:
    """Draw the loss of a run on the left and its scores on unseen data on the right.

    The loss of a self-critical stage is left out, since it is not a likelihood; its reward has a panel of its
    own, and a dashed line marks where the stage began.

    A loss with many points is drawn faint, with its running mean over it. The best value of each score is
    marked and written beside its name. Scores that exceed one, such as CIDEr, have a panel of their own.

    Args:
        metrics: By name, as :func:`read_metrics` returns them.
        title: Text above.
        stacked: Whether panels stand one below the other, for a page that may be narrow.

    Example:
        >>> figure = curves({"loss": [(0, 3.0), (9, 2.0)], "bleu4": [(9, 0.25)]})
        >>> [axes.get_title(loc="left") for axes in figure.axes]
        ['Loss', 'bleu4 on unseen data: 0.250 at best']
    """
    metrics = {name.removeprefix("val_") if name != "val_loss" else name: c for name, c in metrics.items()}
    reward = metrics.get("reward", ())
    rewarded = {step for step, _ in reward}
    metrics["loss"] = [(step, value) for step, value in metrics.get("loss", ()) if step not in rewarded]
    began = metrics["loss"][-1][0] if reward and metrics["loss"] else None
    losses = {name: metrics[name] for name in ("loss", "val_loss") if metrics.get(name)}
    drawn = {"reward": reward} if reward else {}
    scores = {name: c for name, c in metrics.items() if name not in (*_NOT_SCORES, *_LOSSES) and c}
    large = {name: curve for name, curve in scores.items() if max(value for _, value in curve) > _SHARE}
    shares = {name: curve for name, curve in scores.items() if name not in large}
    panels = {"Loss": losses, _REWARD: drawn, "Scores on unseen data": shares, ", ".join(large): large}
    panels = {name: panel for name, panel in panels.items() if panel}
    if not panels:
        raise ValueError("there is nothing to draw: no loss and no score has a value yet")
    with style():
        rows, columns = (len(panels), 1) if stacked else (1, len(panels))
        size = (0.4 + 4.4 * columns, 3.2 * rows)
        figure = FallbackFontFigure(figsize=size, dpi=150, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)  # type: ignore[union-attr, call-arg]
        axes = figure.subplots(rows, columns, squeeze=False)
        for ax, (name, panel) in zip(axes.flat, panels.items(), strict=True):
            _style_axes(ax, name)
            if began is not None and panel is not drawn:
                label = "self-critical from here" if panel is losses else None
                ax.axvline(began, color=SOFT, linestyle="--", linewidth=1, label=label)
            (_draw_losses if set(panel) <= set(_LOSSES) else _draw_scores)(ax, panel)
        if title:
            figure.suptitle(title)
    return figure


def _draw_losses(ax: Axes, curves: Mapping[str, Curve]) -> None:
    for colour, (name, curve) in zip(_line_colours(len(curves)), curves.items(), strict=True):
        steps, values = zip(*curve, strict=True)
        if len(curve) > _MANY:
            ax.plot(steps, values, color=colour, alpha=0.25, linewidth=0.8)
            values = _running_mean(values, len(curve) // 40)
        marker = "o" if len(curve) == 1 else None  # a line needs two points
        ax.plot(
            steps, values, color=colour, linewidth=1.6, marker=marker, markersize=4.5, label=_LOSSES[name]
        )
    if len(ax.get_legend_handles_labels()[0]) > 1:
        ax.legend()


def _draw_scores(ax: Axes, scores: Mapping[str, Curve]) -> None:
    """Draw a line per score with a dot at its best; the legend follows the order of the last values."""
    ordered = sorted(scores.items(), key=lambda item: -item[1][-1][1])
    for colour, (name, curve) in zip(_line_colours(len(ordered)), ordered, strict=True):
        steps, values = zip(*curve, strict=True)
        best = max(range(len(values)), key=lambda i: values[i])
        ax.plot(steps, values, color=colour, linewidth=1.6, label=f"{name} {values[best]:.3f}")
        ax.plot(steps[best], values[best], "o", color=colour, markersize=4.5)
    ax.set_ylim(bottom=min(0.0, *(value for curve in scores.values() for _, value in curve)))
    if len(scores) == 1:
        ax.set_title(f"{name} on unseen data: {values[best]:.3f} at best", loc="left")
        return
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9, borderaxespad=0.2, handlelength=1.2)


def _style_axes(ax: Axes, name: str) -> None:
    ax.set_title(name, loc="left")
    ax.set_xlabel("step")
    ax.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    ax.spines["bottom"].set(visible=True, color=SOFT)
    ax.grid(axis="y", linewidth=0.8)
    ax.set_axisbelow(True)


def _line_colours(n: int) -> list[str]:
    return [LINES[i % len(LINES)] for i in range(n)]


def _running_mean(values: Sequence[float], width: int) -> tuple[float, ...]:
    """The mean of each value and of ``width`` neighbours on either side."""
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    bounds = [(max(0, i - width), min(len(values), i + width + 1)) for i in range(len(values))]
    return tuple((sums[b] - sums[a]) / (b - a) for a, b in bounds)


def _number(cell: str | None, path: Path, line: int) -> float:
    try:
        return float(cell or "")
    except ValueError:
        raise ValueError(f"line {line} of {str(path)!r} must hold numbers, got {cell!r}") from None
